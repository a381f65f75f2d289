// Facts of a planned step that need no times: buckets, traffic by class of link, and bytes between pairs of ranks.
#pragma once

#include <vector>

#include "batch/step_plan.hpp"
#include "compiler/job_plans.hpp"
#include "config/job.hpp"
#include "ir/program.hpp"
#include "report/page.hpp"

namespace switchyard::report {

/// The labels of each phase of a plan.
std::vector<PhaseLabel> phase_labels(const batch::StepPlan& plan, const compiler::Plans& plans);

/// A row for each bucket of the job, the longest first; buckets without documents have zeros. lengths: tokens of the
/// step's documents.
std::vector<BucketRow> bucket_rows(const config::Job& job, const batch::StepPlan& plan, const compiler::Plans& plans,
                                   const std::vector<i64>& lengths);
/// Sets the seconds of the buckets that run in `timeline`, separately for predicted and measured tracks.
void add_times(std::vector<BucketRow>& rows, const batch::StepPlan& plan, const Timeline& timeline);

/// Where the step's documents lie.
Documents documents_of(const config::Job& job, const batch::StepPlan& plan, const compiler::Plans& plans,
                       const std::vector<i64>& lengths);

/// Bytes sent in a training step: inside stages, between stages, parameters to the next strategy, gradients to home,
/// parameters and gradients of single runs, keys and values between ring ranks.
/// The few bytes of the batch plan and the norm are omitted.
std::vector<LinkUse> link_uses(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans);

/// A matrix for each switch of the step and for each strategy's reduce, in order of phases. Switches of the first step
/// start at home. What is encoded counts as it travels.
std::vector<Matrix> switch_matrices(const ir::Program& program, const batch::StepPlan& plan,
                                    const compiler::Plans& plans);

}  // namespace switchyard::report
