// Activations of a stage, replayed through its segments.
#pragma once

#include "ir/code.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Of a micro-batch of T tokens in documents of at most `longest`, on the first position: with the temporaries of
/// kernels, counted as compiler/memory counts them, without the rounding of blocks.
Kept activations_of(const ir::StageCode& stage, i64 T, i64 longest);

}  // namespace switchyard::planner
