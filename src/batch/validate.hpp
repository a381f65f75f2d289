// Proof that a step plan is right, and how much of it is padding.
#pragma once

#include <span>

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

}  // namespace switchyard::batch
