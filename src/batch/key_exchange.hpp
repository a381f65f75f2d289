// Who sends which keys and values to whom, so that each query of a micro-batch on several ring ranks finds all that it
// sees on its own rank. Source: Llama 3, arXiv 2407.21783, section 3.3.2 (keys and values are gathered at once).
#pragma once

#include <span>
#include <vector>

#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// `count` rows of keys, from `row` on in the shard of ring rank `holder`, and from `at` on among those that another
/// rank sees.
struct KeyRows {
  int holder = 0;
  i64 row = 0, at = 0;
  int count = 0;
  bool operator==(const KeyRows&) const = default;
};

/// Queries [q, q + qn) of a ring rank's shard, which are the last of the keys [k, k + kn) of their document: query i
/// sees the first kn - qn + i + 1 of them.
struct QueryBlock {
  int q = 0, qn = 0, k = 0, kn = 0;
  bool operator==(const QueryBlock&) const = default;
};

/// What the queries of a ring rank see. rows: of keys that are brought together, each document's in their order, from
/// the ring ranks that `from` names, the rank's own among them; 0: all that it sees are keys of its own, and blocks
/// count in its shard.
struct SeenKeys {
  i64 rows = 0;
  std::vector<KeyRows> from;
  std::vector<QueryBlock> blocks;
  bool operator==(const SeenKeys&) const = default;
};

/// Of each ring rank of a micro-batch.
/// errors  InternalError if a document's tokens before those of a rank lie on no rank, or a piece has a stride
std::vector<SeenKeys> key_exchange(const MicroBatch& micro_batch);

/// SeenKeys::rows of a ring rank with this shard.
i64 keys_brought_together(std::span<const Piece> shard);

}  // namespace switchyard::batch
