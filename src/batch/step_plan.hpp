// One global batch, laid out: which documents go to which strategy, pipeline and micro-batch.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::batch {

/// Tokens first, first + stride, ... of a document (count of them). doc: index into the step's documents; -1: padding.
struct Piece {
  i64 doc = -1;
  int first = 0, count = 0, stride = 1;
  bool operator==(const Piece&) const = default;
};

/// The position in the document after the piece's last token.
inline int end_of(const Piece& piece) { return piece.first + (piece.count - 1) * piece.stride + 1; }

/// Attention pairs of the piece's queries: the token at position p sees p + 1 keys, wherever these lie.
inline i64 attention_pairs(const Piece& piece) {
  const i64 n = piece.count;
  return n * (piece.first + i64{1}) + n * (n - 1) / 2 * piece.stride;
}

inline Piece padding(i64 tokens) { return {.doc = -1, .count = static_cast<int>(tokens)}; }
/// Tokens that are missing to a multiple, possibly none.
inline Piece padding_of(i64 tokens, i64 multiple) { return padding((multiple - tokens % multiple) % multiple); }

/// One micro-batch. Ring rank r has T[r] tokens, the pieces shard[r] one after the other, padding last (one padding
/// piece at most, unless documents are padded). The numbers of tokens may differ; a rank without documents has padding
/// only. Without ring attention there is one ring rank.
struct MicroBatch {
  std::vector<i64> T;
  std::vector<std::vector<Piece>> shard;
  bool operator==(const MicroBatch&) const = default;
};

/// Tokens of a micro-batch on all its ring ranks, padding included.
inline i64 tokens(const MicroBatch& micro_batch) {
  return std::accumulate(micro_batch.T.begin(), micro_batch.T.end(), i64{0});
}

/// Attention pairs of a query on a ring rank and a key that it sees.
inline double attention_pairs(std::span<const Piece> shard) {
  double pairs = 0;
  for (const Piece& piece : shard)
    if (piece.doc >= 0) pairs += static_cast<double>(attention_pairs(piece));
  return pairs;
}
/// The same over all ring ranks.
inline double attention_pairs(const MicroBatch& micro_batch) {
  double pairs = 0;
  for (const auto& shard : micro_batch.shard) pairs += attention_pairs(shard);
  return pairs;
}

/// Squared lengths, summed over the documents of a ring rank; of a document in parts each rank has a part.
inline i64 squared_lengths(std::span<const Piece> shard) {
  i64 sum = 0;  // n^2 is the sum of 2 p + 1 over the positions p of a document
  for (const Piece& piece : shard)
    if (piece.doc >= 0) sum += 2 * attention_pairs(piece) - piece.count;
  return sum;
}
/// The same over all ring ranks.
inline i64 squared_lengths(const MicroBatch& micro_batch) {
  i64 sum = 0;
  for (const auto& shard : micro_batch.shard) sum += squared_lengths(shard);
  return sum;
}

/// The most keys that queries of a ring rank see of a document: without ring attention its longest document.
inline i64 longest(std::span<const Piece> shard) {
  i64 most = 0;
  for (const Piece& piece : shard)
    if (piece.doc >= 0) most = std::max<i64>(most, end_of(piece));
  return most;
}
/// Tokens of the longest document of a micro-batch.
inline i64 longest(const MicroBatch& micro_batch) {
  i64 most = 0;
  for (const auto& shard : micro_batch.shard) most = std::max(most, longest(shard));
  return most;
}

/// replica[i]: the micro-batches of pipeline i of the strategy (replicas in order: group, then data), possibly none.
struct PhasePlan {
  int strategy = 0;
  std::vector<std::vector<MicroBatch>> replica;
  bool operator==(const PhasePlan&) const = default;
};

/// valid_tokens: labels of the global batch that count in the loss (of a document of n tokens n - 1, or fewer). Phases
/// in order of execution; strategies without documents have no phase.
struct StepPlan {
  i64 step = 0, valid_tokens = 0;
  std::vector<PhasePlan> phases;
  bool operator==(const StepPlan&) const = default;
};

}  // namespace switchyard::batch
