// Lengths of documents, for planning: steps that stand for all, and the bounds that buckets may have.
#pragma once

#include "planner/cost_model.hpp"

namespace switchyard::planner {

/// Bounds: the context, and its halves down to `shortest` tokens; bounds between which no document lies are left out.
/// steps: lengths of the documents of each, 1 to context
Workload workload_of(std::vector<std::vector<i64>> steps, i64 context, i64 shortest = 256);

}  // namespace switchyard::planner
