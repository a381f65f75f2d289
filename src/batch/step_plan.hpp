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

/// One row of T tokens. shard[r]: the pieces of ring rank r, T / shard.size() tokens each, padding last (one padding piece
/// at most). Without ring attention there is one shard.
struct MicroBatch {
  i64 T = 0;
  std::vector<std::vector<Piece>> shard;
  bool operator==(const MicroBatch&) const = default;
};

/// Pairs of a query and a key that it sees, over the documents of a row.
inline double causal_pairs(const MicroBatch& row) {
  double pairs = 0;
  for (const auto& shard : row.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0) pairs += 0.5 * piece.count * (piece.count + 1.0);
  return pairs;
}

/// Squared lengths, summed over the documents of a row.
inline i64 squares(const MicroBatch& row) {
  i64 sum = 0;
  for (const auto& shard : row.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0) sum += i64{piece.count} * piece.count;
  return sum;
}

/// Tokens of the longest document of a row.
inline i64 longest(const MicroBatch& row) {
  i64 most = 0;
  for (const auto& shard : row.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0 && piece.count > most) most = piece.count;
  return most;
}

/// lane[i]: the micro-batches of pipeline i of the strategy (lanes in order: group, then data), possibly none.
struct PhasePlan {
  int strategy = 0;
  std::vector<std::vector<MicroBatch>> lane;
  bool operator==(const PhasePlan&) const = default;
};

/// valid_tokens: labels of the global batch (every document of n tokens has n - 1). Phases in order of execution; strategies
/// without documents have no phase.
struct StepPlan {
  i64 step = 0, valid_tokens = 0;
  std::vector<PhasePlan> phases;
  bool operator==(const StepPlan&) const = default;
};

}  // namespace switchyard::batch
