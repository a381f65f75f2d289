// Activations of a stage, replayed through its segments.
#pragma once

#include "ir/code.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Activations of a micro-batch of size.tokens in documents of at most size.longest, on the position with the most:
/// including kernels' temporaries, and keys that come together from several ring ranks, counted as in compiler/memory,
/// but without the rounding of allocations.
Kept activations_of(const ir::StageCode& stage, const ir::CallSize& size);

}  // namespace switchyard::planner
