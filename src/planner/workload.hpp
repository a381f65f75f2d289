// Lengths of documents for planning: representative steps, and the bounds that buckets may have.
#pragma once

#include "planner/cost_model.hpp"

namespace switchyard::planner {

/// Bounds: the context, and its halves down to `shortest` tokens, without bounds between which there are no documents.
/// steps: the document lengths of each step, 1 to context.
Workload workload_of(std::vector<std::vector<i64>> steps, i64 context, i64 shortest = 256);

}  // namespace switchyard::planner
