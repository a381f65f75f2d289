// Who sends which keys and values to whom, so that each query of a micro-batch on several ring ranks finds all that it
// sees on its own rank. Source: Llama 3, arXiv 2407.21783, section 3.3.2 (keys and values are gathered at once).
#pragma once

#include <span>
#include <vector>

#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// `count` rows of keys of a ring rank, from `row` on in its shard, and from `at` on among those that it sees.
struct KeyRows {
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

/// What the queries of a ring rank see. rows: of keys that are brought together, each document's in their order; 0: all
/// that it sees are keys of its own, and blocks count in its shard. own: those of its own among them.
struct SeenKeys {
  i64 rows = 0;
  std::vector<KeyRows> own;
  std::vector<QueryBlock> blocks;
  bool operator==(const SeenKeys&) const = default;
};

/// `count` rows of keys from one ring rank to another, which sees them from `at` on. They lie in the sender's shard from
/// `row` on, or, where it passes on what another host sent, among those that it sees.
struct KeyMessage {
  int from = 0, to = 0;
  i64 row = 0, at = 0;
  int count = 0;
  bool passed_on = false;
  bool operator==(const KeyMessage&) const = default;
};

/// seen: of each ring rank. rounds: of messages, one after the other. Keys cross to a host once and are passed on inside
/// in the second round (two levels, as in LoongTrain, arXiv 2406.18485). Gradients go the same ways backwards: the last
/// round first, each message from its `to` to its `from`, which adds them to what it has.
struct KeyExchange {
  std::vector<SeenKeys> seen;
  std::vector<std::vector<KeyMessage>> rounds;
};

/// Of a micro-batch whose ring ranks are on these hosts; none given: all are on one.
/// errors  InternalError if a document's tokens before those of a rank lie on no rank, or a piece has a stride
KeyExchange key_exchange(const MicroBatch& micro_batch, std::span<const int> hosts = {});

/// SeenKeys::rows of a ring rank with this shard.
i64 keys_brought_together(std::span<const Piece> shard);

}  // namespace switchyard::batch
