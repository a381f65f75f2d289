// Two packing problems of the batch planner: documents onto replicas, and the documents of a replica into
// micro-batches.
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

/// The documents of one micro-batch, and sums over them.
struct PackedSequence {
  std::vector<Item> items;
  i64 tokens = 0;
  double work = 0;
};

/// A replica: its relative speed, and the stages of its pipeline.
struct Pipeline {
  double speed = 1;
  int stages = 1;
  auto operator<=>(const Pipeline&) const = default;
};

/// Documents per replica, longest first: each goes where it would end first (longest processing time first). One that
/// is heavier than an even micro-batch delays its replica by (stages - 1) times the excess.
std::vector<std::vector<Item>> spread_over_replicas(std::vector<Item> items, std::span<const Pipeline> pipelines);

/// Limits of a micro-batch.
struct Capacity {
  i64 tokens = 0;
  i64 items = 0;  // 0: any number
};

/// Micro-batches within `capacity`, heaviest first. Their number is that of first-fit decreasing, unless more of them
/// (up to `stages`, or an eighth more) shorten the pipeline's time, sum of work + (stages - 1) * heaviest micro-batch,
/// by over 1%.
/// items   longest first, none longer than capacity.tokens
/// paired  an even number of micro-batches, one more than otherwise, where documents and capacity allow it
std::vector<PackedSequence> pack_sequences(std::span<const Item> items, Capacity capacity, int stages,
                                           bool paired = false);

}  // namespace switchyard::batch
