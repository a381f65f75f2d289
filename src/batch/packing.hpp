// Two packing problems of the batch planner: documents onto lanes, and the documents of a lane into rows.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::batch {

/// A document to place. Work grows with tokens, so heaviest first is also longest first.
struct Item {
  i64 doc = 0, tokens = 0;
  double work = 0;
  bool operator==(const Item&) const = default;
};

/// What becomes a micro-batch: sums over its items.
struct Row {
  std::vector<Item> items;
  i64 tokens = 0;
  double work = 0;
};

/// Documents per lane, longest first: each goes where it would end first (longest processing time first).
/// speed   relative speed, one per lane
/// stages  of the pipeline: a document heavier than an even row delays its lane by (stages - 1) times the excess
std::vector<std::vector<Item>> spread_over_lanes(std::vector<Item> items, std::span<const double> speed, int stages);

/// What fits in a row.
struct Capacity {
  i64 tokens = 0;
  i64 items = 0;  // 0: any number
  i64 left(const Row& row) const { return items > 0 && std::cmp_equal(row.items.size(), items) ? 0 : tokens - row.tokens; }
};

/// Rows within `capacity`, heaviest first. As few as first-fit decreasing needs, unless more of them (up to
/// `stages`, or an eighth more) shorten the pipeline's time, sum of work + (stages - 1) * heaviest row, by over 1%.
/// items   longest first, none longer than capacity.tokens
std::vector<Row> pack_rows(std::span<const Item> items, Capacity capacity, int stages);

}  // namespace switchyard::batch
