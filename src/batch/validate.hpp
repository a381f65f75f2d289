// Proof that a step plan is right, and figures of how good it is.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "batch/planner.hpp"
#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// Proves that every token of every document is placed exactly once, each document in one micro-batch of one replica of
/// the bucket it belongs to; that each micro-batch is within capacity and on its replica's ring ranks, each padded to
/// the multiple and no further, with one padding piece at most, last in its shard, apart from that of documents; and
/// that valid_tokens counts the labels, or at most these where a mask says which count. Ring ranks may share a
/// document. errors InternalError, naming the document or the micro-batch
void validate(const StepPlan& plan, std::span<const i64> lengths, std::span<const BucketSpec> buckets,
              bool masked = false);

/// Padding tokens over all tokens of the plan's micro-batches; 0 for an empty plan.
double padding_share(const StepPlan& plan);

/// Work per replica of a phase, padding left out.
std::vector<double> replica_work(const PhasePlan& phase, std::span<const i64> lengths, const WorkModel& work);

/// How evenly a phase uses its replicas. share: the work of each divided by its speed, in units of an even share. No
/// assignment of whole documents has less than `bound` at its slowest replica.
struct Balance {
  std::vector<double> share;
  double bound = 1;
  double slowest() const { return *std::max_element(share.begin(), share.end()); }
};
Balance balance_of(const PhasePlan& phase, std::span<const i64> lengths, const BucketSpec& bucket,
                   const WorkModel& work);

}  // namespace switchyard::batch
