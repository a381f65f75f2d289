// Time of a strategy's pipelines on the micro-batches of a bucket.
#pragma once

#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "schedule/schedule.hpp"
#include "simulator/shared_resources.hpp"

namespace switchyard::planner {

/// A micro-batch: T tokens with padding, and attention pairs of a query and a key that it sees.
struct PackedSequence {
  i64 T = 0;
  double attention_pairs = 0;
  bool operator==(const PackedSequence&) const = default;
};

/// Seconds of one micro-batch at one position of the pipeline. backward: of both gradients, or where the schedule
/// splits them of the inputs'. send: to the next position, activations, and gradients of the same size back; nothing on
/// the same stage. ..._exchange: what of it is communication inside the stage.
struct StageTime {
  double forward = 0, backward = 0, weight = 0, send = 0;
  double forward_exchange = 0, backward_exchange = 0, weight_exchange = 0;
};

/// When a pipeline is through with its micro-batches: at[position][micro-batch]. Each item starts when its stage is
/// free and what comes from the position beside is there; sends run beside the computing, those of a position and
/// direction one after the other.
/// errors  InternalError if the stages wait for each other in a cycle
double pipeline_seconds(const schedule::Schedule& schedule, const std::vector<std::vector<StageTime>>& at);

/// A pipeline among others whose hosts' devices slow each other. hosts: by stage, what it takes of its hosts while it
/// computes and nothing slows it; shares of 1 in all are a host's.
struct SharedPipeline {
  schedule::Schedule schedule;
  std::vector<std::vector<StageTime>> at{};  // [position][micro-batch]
  std::vector<std::vector<simulator::Claim>> hosts{};
};
struct SharedSeconds {
  double seconds = 0, compute = 0;  // until all are through; that all stages of all pipelines computed, summed
};
/// The same for pipelines side by side. Computing is `speedup` times as quick as `at` says where nothing slows it; a
/// host of which more than the whole is taken gives everybody their part, as in simulator::SharedResources. An item
/// computes, then it communicates.
/// errors  as pipeline_seconds
SharedSeconds shared_seconds(std::span<const SharedPipeline> pipelines, int hosts, double speedup);

}  // namespace switchyard::planner
