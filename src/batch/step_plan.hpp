// One global batch, laid out: which documents go to which strategy, pipeline and micro-batch.
#pragma once

#include <vector>

#include "base/dtype.hpp"

namespace switchyard::batch {

/// Tokens first, first + stride, ... of a document (count of them). doc: index into the step's documents; -1: padding.
struct Piece {
  i64 doc = -1;
  int first = 0, count = 0, stride = 1;
  bool operator==(const Piece&) const = default;
};

/// One micro-batch of T tokens. shard[r]: the pieces of ring rank r, T / shard.size() tokens each, padding last (one
/// padding piece at most). Without ring attention there is one shard.
struct MicroBatch {
  i64 T = 0;
  std::vector<std::vector<Piece>> shard;
  bool operator==(const MicroBatch&) const = default;
};

/// Attention pairs of a query and a key that it sees, over the documents of a micro-batch.
inline double attention_pairs(const MicroBatch& micro_batch) {
  double attention_pairs = 0;
  for (const auto& shard : micro_batch.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0) attention_pairs += 0.5 * piece.count * (piece.count + 1.0);
  return attention_pairs;
}

/// Squared lengths, summed over the documents of a micro-batch.
inline i64 squared_lengths(const MicroBatch& micro_batch) {
  i64 sum = 0;
  for (const auto& shard : micro_batch.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0) sum += i64{piece.count} * piece.count;
  return sum;
}

/// Tokens of the longest document of a micro-batch.
inline i64 longest(const MicroBatch& micro_batch) {
  i64 most = 0;
  for (const auto& shard : micro_batch.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0 && piece.count > most) most = piece.count;
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
