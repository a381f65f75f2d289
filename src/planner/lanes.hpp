// Time of a strategy's pipelines on the micro-batches of a bucket.
#pragma once

#include <vector>

#include "base/dtype.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::planner {

/// A micro-batch: T tokens with padding, and pairs of a query and a key that it sees.
struct Row {
  i64 T = 0;
  double pairs = 0;
  bool operator==(const Row&) const = default;
};

/// Seconds of one micro-batch at one position of the pipeline. backward: of both gradients, or where the schedule splits them of the
/// inputs'. send: to the next position, activations, and gradients of the same size back; nothing on the same stage.
struct StageTime {
  double forward = 0, backward = 0, weight = 0, send = 0;
};

/// When a pipeline is through with its micro-batches: at[position][micro-batch]. Each item starts when its stage is free and what comes
/// from the position beside is there; sends run beside the computing, those of a position and direction one after the other.
/// errors  InternalError if the stages wait for each other in a circle
double pipeline_seconds(const schedule::Schedule& schedule, const std::vector<std::vector<StageTime>>& at);

}  // namespace switchyard::planner
