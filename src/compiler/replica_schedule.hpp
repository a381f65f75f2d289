// The pipeline schedule of a replica: in which order its stages run the passes of a step's micro-batches.
#pragma once

#include "batch/step_plan.hpp"
#include "compiler/assemble.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::compiler {

/// Rates of a device that stands for all of its kind. Only their ratios matter: what is decided by them - schedules,
/// the ring ranks of documents - must be the same on every device. flops and bytes a second: of products, memory, links
/// inside a host and between hosts.
struct NominalDevice {
  double flops = 0, memory = 0, inside = 0, across = 0;
  Seconds seconds(const SegmentCost& cost, double T, double pairs) const {
    return Seconds{cost.flops(T, pairs) / flops + cost.bytes(T, pairs) / memory};
  }
};
NominalDevice nominal_device(DType compute);

/// The strategy's schedule for `mbs` micro-batches on each replica of `group` that follows it, or for so many pairs of
/// them; micro-batches beyond are removed from a hand-written order. Evaluation (train false) has no gradients and runs
/// like GPipe. Zero-bubble and ZeroPP schedules are made for the estimated times of the mean of micro_batches; those of
/// zero-bubble and ZB-V for three kinds of device at once. These join both kinds of gradients of some micro-batches
/// where stages have code for that.
schedule::Schedule schedule_of(const CompiledStrategy& strategy, int group, int mbs,
                               const std::vector<batch::MicroBatch>& micro_batches, bool train);

/// The same for training with `mbs` micro-batches of T tokens and `pairs` attention pairs each, on positions with these
/// costs. cap: most activations held at a time; 0: as many as 1F1B holds. every: of zeropp.
schedule::Schedule schedule_of(config::ScheduleKind kind, int chunks, int cap, int every,
                               const std::vector<StageCost>& costs, int mbs, double T, double pairs);

}  // namespace switchyard::compiler
