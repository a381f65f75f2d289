// The first steps of a job, planned exactly as in training.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/hardware.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "compiler/step_assembler.hpp"

namespace switchyard::apps {

struct PlannedStep {
  std::vector<i64> lengths;  // tokens of each document
  batch::StepPlan plan;
  ir::Program program;
  std::optional<i64> peak{};  // bytes of the rank with the highest peak, where the job has a budget
};

/// Tokens of each document of steps 1 to `count`, from batch.lengths or else from the job's data. Without either the
/// lengths are synthetic, and a line on standard output says so.
std::vector<std::vector<i64>> lengths_of_steps(const config::Job& job, int count);
/// The same for step index + 1 alone.
std::vector<i64> lengths_of_step(const config::Job& job, i64 index);
/// The batch of step index + 1, for documents of these lengths.
batch::StepPlan planned_batch(const config::Job& job, const std::vector<batch::BucketSpec>& buckets, i64 index,
                              const std::vector<i64>& lengths);
/// Step index + 1, for documents of these lengths. Where the job has a memory budget, its program prefetches at first
/// what one of the ranks has memory for.
class StepPlanner {
 public:
  StepPlanner(const config::Job& job, const compiler::Plans& plans, i64 index, std::vector<i64> lengths);
  /// Prefetches less if another rank exceeds the budget. Returns whether the program changed.
  bool keep_to_budget();
  const PlannedStep& step() const& { return step_; }
  PlannedStep step() && { return std::move(step_); }

 private:
  void prefetch(int units);
  const compiler::Plans& plans_;
  i64 budget_;  // bytes; 0: none
  PlannedStep step_;
  compiler::StepAssembler assembler_;
  compiler::BudgetCheck check_;
  int units_ = 0;  // that are prefetched
};
/// Step index + 1 as it is trained: within the budget.
PlannedStep planned_step(const config::Job& job, const compiler::Plans& plans, i64 index, std::vector<i64> lengths);

/// Share of the devices' matrix product rate that three forward passes over these documents take in so many seconds;
/// recomputation doesn't count.
double matmul_share(const config::Job& job, const std::vector<i64>& lengths, double seconds,
                    const cluster::Hardware& hardware);
/// "Step 5.30 s (75.8k tokens/s, 52% of peak)", of steps with so many tokens in the mean. share: as matmul_share.
std::string step_words(double seconds, double tokens, double share);
/// Bytes of the largest copy that a rank makes for an asynchronous checkpoint of the job; 0: it makes none.
i64 checkpoint_copy(const config::Job& job, const compiler::Plans& plans);
/// What a copy of so many bytes needs, as a line; empty for 0.
std::string checkpoint_copy_line(i64 bytes);

/// Steps 1 to `count` of the job, with lengths_of_steps.
std::vector<PlannedStep> first_steps(const config::Job& job, const compiler::Plans& plans, int count);

}  // namespace switchyard::apps
