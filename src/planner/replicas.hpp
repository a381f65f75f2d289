// Time of a strategy's pipelines on the micro-batches of a bucket.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "schedule/schedule.hpp"
#include "simulator/shared_resources.hpp"

namespace switchyard::planner {

/// Query-key pairs of a document.
inline double attention_pairs_of(i64 length) {
  return 0.5 * static_cast<double>(length) * (static_cast<double>(length) + 1);
}

/// A micro-batch: T tokens, including padding, its number of query-key pairs, and the seconds in which ring ranks pass
/// on the keys and values of a layer, and their gradients. Of several ring ranks: the slowest one. longest: of
/// documents that are not yet assigned to ring ranks, the longest.
struct PackedSequence {
  i64 T = 0;
  double attention_pairs = 0, values = 0, gradients = 0;
  i64 longest = 0;
  bool operator==(const PackedSequence&) const = default;
};
/// The larger of each of their figures.
inline PackedSequence largest(const PackedSequence& a, const PackedSequence& b) {
  return {.T = std::max(a.T, b.T),
          .attention_pairs = std::max(a.attention_pairs, b.attention_pairs),
          .values = std::max(a.values, b.values),
          .gradients = std::max(a.gradients, b.gradients),
          .longest = std::max(a.longest, b.longest)};
}

/// Seconds of one micro-batch at one position of the pipeline. backward: of both gradients, or of input gradients where
/// the schedule splits them; joined: of both in a schedule that splits some and joins others. send: of activations to
/// the next position, and of their gradients back; 0 if that is the same stage. ..._exchange: the part that is
/// communication inside the stage.
struct StageTime {
  double forward = 0, backward = 0, weight = 0, send = 0;
  double forward_exchange = 0, backward_exchange = 0, weight_exchange = 0;
  double joined = 0, joined_exchange = 0;
  double of(Pass pass) const {
    return pass == Pass::F ? forward : pass == Pass::W ? weight : pass == Pass::BW && joined > 0 ? joined : backward;
  }
  double exchange_of(Pass pass) const {
    if (pass == Pass::F) return forward_exchange;
    if (pass == Pass::W) return weight_exchange;
    return pass == Pass::BW && joined > 0 ? joined_exchange : backward_exchange;
  }
};

/// Seconds until a pipeline has finished its micro-batches: at[position][micro-batch]. Each item starts when its stage
/// is free and its input from the neighbouring position has arrived; sends overlap computing, and those of a position
/// and direction run one after the other.
double pipeline_seconds(const schedule::Schedule& schedule, const std::vector<std::vector<StageTime>>& at);

/// A pipeline among others whose devices slow each other on shared hosts. hosts: by stage, its claims on its hosts
/// while it computes and nothing slows it; claims on a host that add up to 1 use all of it.
struct SharedPipeline {
  schedule::Schedule schedule;
  std::vector<std::vector<StageTime>> at{};  // [position][micro-batch]
  std::vector<std::vector<simulator::Claim>> hosts{};
};
struct SharedSeconds {
  double seconds = 0, compute = 0;  // seconds until all have finished; compute: summed over all stages of all pipelines
};
/// The same for concurrent pipelines. Computing is `speedup` times as fast as `at` states where nothing slows it; a
/// host on which the claims exceed 1 is shared in proportion, as in simulator::SharedResources. An item computes, then
/// it communicates.
/// errors  as pipeline_seconds
SharedSeconds shared_seconds(std::span<const SharedPipeline> pipelines, int hosts, double speedup);

}  // namespace switchyard::planner
