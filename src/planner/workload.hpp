// Lengths of documents for planning: representative steps, and the bounds that buckets may have.
#pragma once

#include <compare>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::planner {

/// Documents longer than bounds[lo - 1] (lo = 0: all) and up to bounds[hi - 1].
struct Range {
  int lo = 0, hi = 0;
  auto operator<=>(const Range&) const = default;
};

/// bounds: possible longest documents of buckets, ascending. steps: document lengths of representative steps; times are
/// means over them.
struct Workload {
  std::vector<i64> bounds;
  std::vector<std::vector<i64>> steps;
  i64 longest(Range range) const { return bounds[static_cast<size_t>(range.hi - 1)]; }
};

/// Bounds: the context, and its halves down to `shortest` tokens, without bounds between which there are no documents.
/// steps: the document lengths of each step, 1 to context.
Workload workload_of(std::vector<std::vector<i64>> steps, i64 context, i64 shortest = 256);

}  // namespace switchyard::planner
