// Messages of keys and values between ring ranks, so that each query of a micro-batch on several ring ranks finds all
// that it sees on its own rank. Sources: Ring Attention, arXiv 2310.01889 (block by block); Llama 3, arXiv 2407.21783,
// section 3.3.2 (all at once).
#pragma once

#include <span>
#include <vector>

#include "base/key_passing.hpp"
#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// `count` rows of keys of a ring rank, from `row` on in its shard, and from `at` on among those that it receives.
struct KeyRows {
  i64 row = 0, at = 0;
  int count = 0;
  bool operator==(const KeyRows&) const = default;
};

/// Queries [q, q + qn) of a ring rank's shard and the keys [k, k + kn). causal: the queries are the last of the keys of
/// their document, and query i sees the first kn - qn + i + 1 of them; else each sees all.
struct QueryBlock {
  int q = 0, qn = 0, k = 0, kn = 0;
  bool causal = true;
  bool operator==(const QueryBlock&) const = default;
};
/// Pairs of a query and a key that it sees.
double attention_pairs(const QueryBlock& block);

/// The keys that queries of a ring rank see. rows: of the memory for keys that it receives; 0: all that it sees are
/// keys of its own. own: those of its own that are brought together with them. blocks[i]: those that can be computed
/// when i rounds of messages have ended; they count in what was received, those of blocks[0] in its shard.
struct SeenKeys {
  i64 rows = 0;
  std::vector<KeyRows> own;
  std::vector<std::vector<QueryBlock>> blocks;
  bool operator==(const SeenKeys&) const = default;
};

/// `count` rows of keys from one ring rank to another, which has them from `at` on among those that it receives. They
/// lie in the sender's shard from `row` on, or, where it passes on what another host sent, among those it received.
struct KeyMessage {
  int from = 0, to = 0;
  i64 row = 0, at = 0;
  int count = 0;
  bool passed_on = false;
  bool operator==(const KeyMessage&) const = default;
};

/// Keys cross to a host once and are passed on inside in later rounds (two rings, as in LoongTrain, arXiv 2406.18485).
/// gather    a rank's blocks have a part's queries and all that they see, after the last round, in at most two rounds
/// ring      blocks[t] have the keys of the rank t places before in a document's span, those of other hosts after all
///           of the own one. Round t - 1 brings them; what crosses comes in parts, with as many rounds before as a host
///           has ranks. Memory for keys is used again as soon as they and their gradients are gone
/// seen      one for each ring rank
/// rounds    messages, one round after the other
/// returns   [i]: messages whose gradients go back once blocks[i] and earlier ones are computed and returns[i - 1] have
///           ended: from a message's `to` to its `from`, which adds them to what it has
struct KeyExchange {
  std::vector<SeenKeys> seen;
  std::vector<std::vector<KeyMessage>> rounds, returns;
};

/// The exchange of keys for a micro-batch whose ring ranks are on these hosts; none given: all are on one.
/// errors  InternalError if a document's tokens before those of a rank lie on no rank, or a piece has a stride
KeyExchange key_exchange(const MicroBatch& micro_batch, KeyPassing passing, std::span<const int> hosts = {});

/// SeenKeys::rows of a ring rank with this shard if keys are gathered.
i64 keys_brought_together(std::span<const Piece> shard);

}  // namespace switchyard::batch
