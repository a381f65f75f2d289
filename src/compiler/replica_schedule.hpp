// The pipeline schedule of a replica: which order its stages take a step's micro-batches in.
#pragma once

#include "batch/step_plan.hpp"
#include "compiler/assemble.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::compiler {

/// As the strategy says, for the micro-batches of one replica of `group`; a hand-written order loses those that the
/// replica lacks. Evaluation (train false) has no gradients and runs like GPipe. Zero-bubble schedules are made for the
/// estimated times of a mean micro-batch.
/// errors  UserError if a hand-written order has fewer micro-batches than the replica
schedule::Schedule schedule_of(const CompiledStrategy& strategy, int group,
                               const std::vector<batch::MicroBatch>& micro_batches, bool train);

/// The same for training with so many micro-batches of a mean of T tokens and so many pairs, on positions of these
/// costs. cap: 0 for the memory of 1f1b.
schedule::Schedule schedule_of(config::ScheduleKind kind, int chunks, int cap, const std::vector<StageCost>& costs,
                               int mbs, double T, double pairs);

}  // namespace switchyard::compiler
