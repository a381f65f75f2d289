// How evenly a phase uses its replicas and their ring ranks, beside what no assignment of its documents can fall below.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "batch/planner.hpp"
#include "batch/ring_assignment.hpp"
#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// Work per replica of a phase, padding left out.
std::vector<double> replica_work(const PhasePlan& phase, std::span<const i64> lengths, const WorkModel& work);

/// What the ring ranks of a micro-batch do, padding included. Ring ranks [i * ranks_per_host, (i + 1) * ranks_per_host)
/// are a host. lengths: of the step's documents.
std::vector<RingLoad> ring_loads(const MicroBatch& micro_batch, std::span<const i64> lengths, int ranks_per_host);

/// How evenly a phase uses its replicas, in units of an even share of the phase. share: without rings the work of each
/// replica divided by its speed; with rings the time of its micro-batches, each as long as its slowest ring rank, and
/// an even share is what all ring ranks would take that had equal shares and no messages. No assignment of these
/// documents has less than `bound` at its slowest replica: without rings, the heaviest document is whole on one
/// replica; with rings, it lies on the ring ranks that take it quickest.
struct Balance {
  std::vector<double> share;
  double bound = 1;
  double slowest() const { return *std::max_element(share.begin(), share.end()); }
};
Balance balance_of(const PhasePlan& phase, std::span<const i64> lengths, const BucketSpec& bucket,
                   const WorkModel& work);

}  // namespace switchyard::batch
