// Activations of a stage, replayed through its segments.
#pragma once

#include "ir/code.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Activations of a micro-batch of T tokens in documents of at most `longest`, on the first position: including
/// kernels' temporaries, counted as in compiler/memory, but without the rounding of allocations.
Kept activations_of(const ir::StageCode& stage, i64 T, i64 longest);

}  // namespace switchyard::planner
