// A compiled strategy as the batch planner needs it.
#pragma once

#include "batch/planner.hpp"
#include "compiler/assemble.hpp"

namespace switchyard::compiler {

/// Times of ring ranks by the rates of a nominal device. cost: of all that they run for a micro-batch; key_bytes: of a
/// token's keys, values and gradients in its `exchanges` attentions, forward and backward.
batch::RingCosts ring_costs(const StageCost& cost, i64 key_bytes, int exchanges);

/// The bucket of documents of up to max_length tokens under one of the plans' strategies. A replica's speed is its
/// number of ranks; what its ring ranks take for tokens, pairs and keys is that of a nominal device.
batch::BucketSpec bucket_spec(const Plans& plans, int strategy, i64 max_length);

}  // namespace switchyard::compiler
