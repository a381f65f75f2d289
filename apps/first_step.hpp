// The first steps of a job, planned exactly as in training.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/hardware.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/step_planner.hpp"
#include "progress.hpp"

namespace switchyard::apps {

using compiler::PlannedStep;

/// Tokens of each document of steps 1 to `count`, from batch.lengths or else from the job's data. Without either the
/// lengths are synthetic.
std::vector<std::vector<i64>> lengths_of_steps(const config::Job& job, int count);
/// The same for step index + 1 alone.
std::vector<i64> lengths_of_step(const config::Job& job, i64 index);
/// Says that the lengths are synthetic, in lines; empty where they are not.
std::string synthetic_line(const config::Job& job);
/// Step index + 1 as it is trained: within the budget. used: the buckets (ascending) that it uses; empty: all.
PlannedStep planned_step(const config::Job& job, const compiler::Plans& plans, i64 index, std::vector<i64> lengths,
                         std::span<const int> used = {});

/// Share of the devices' matrix product rate that three forward passes over these documents take in so many seconds;
/// recomputation doesn't count.
double matmul_share(const config::Job& job, const std::vector<i64>& lengths, double seconds,
                    const cluster::Hardware& hardware);
/// "Step 5.30 s (75.8k tokens/s, 52% of peak)", of steps with so many tokens in the mean. share: as matmul_share.
std::string step_words(double seconds, double tokens, double share);
/// Bytes of the largest copy that a rank makes for an asynchronous checkpoint of the job; 0: it makes none.
i64 checkpoint_copy(const config::Job& job, const compiler::Plans& plans);
/// What a copy of so many bytes needs, in lines; empty for 0.
std::string checkpoint_copy_line(i64 bytes);

/// Steps 1 to `count` of the job, with lengths_of_steps; on this hardware where steps choose their buckets.
std::vector<PlannedStep> first_steps(const config::Job& job, const compiler::Plans& plans,
                                     const cluster::Hardware& hardware, int count, const Progress& progress);

}  // namespace switchyard::apps
