#include "batch/key_exchange.hpp"

#include <map>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

// A piece with its first row in a ring rank's shard.
struct Placed {
  int rank = 0;
  i64 row = 0;
  Piece piece{};
};

std::vector<Placed> placed(std::span<const Piece> shard, int rank) {
  std::vector<Placed> pieces;
  i64 row = 0;
  for (const Piece& piece : shard) {
    check(piece.stride == 1, "a piece of document {} with stride {}", piece.doc, piece.stride);
    if (piece.doc >= 0) pieces.push_back({rank, row, piece});
    row += piece.count;
  }
  return pieces;
}

// Tokens of a document up to the last one that a shard has: what its queries see.
std::map<i64, i64> ends_of(std::span<const Piece> shard) {
  std::map<i64, i64> ends;
  for (const Piece& piece : shard)
    if (piece.doc >= 0) ends[piece.doc] = std::max<i64>(ends[piece.doc], end_of(piece));
  return ends;
}

}  // namespace

i64 keys_brought_together(std::span<const Piece> shard) {
  i64 own = 0, seen = 0;
  for (const Piece& piece : shard) own += piece.doc >= 0 ? piece.count : 0;
  for (const auto& [doc, end] : ends_of(shard)) seen += end;
  return seen == own ? 0 : seen;
}

std::vector<SeenKeys> key_exchange(const MicroBatch& micro_batch) {
  std::vector<std::vector<Placed>> of_rank;
  std::map<i64, std::vector<Placed>> of_document;
  for (const auto& shard : micro_batch.shard) {
    of_rank.push_back(placed(shard, static_cast<int>(of_rank.size())));
    for (const Placed& piece : of_rank.back()) of_document[piece.piece.doc].push_back(piece);
  }
  std::vector<SeenKeys> exchange(of_rank.size());
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    SeenKeys& seen = exchange[rank];
    seen.rows = keys_brought_together(micro_batch.shard[rank]);
    std::map<i64, i64> first;  // of a document's keys among those that are seen
    i64 at = 0;
    if (seen.rows > 0)
      for (const auto& [doc, end] : ends_of(micro_batch.shard[rank])) {
        i64 found = 0;
        for (const Placed& keys : of_document.at(doc)) {
          if (keys.piece.first >= end) continue;
          seen.from.push_back({keys.rank, keys.row, at + keys.piece.first, keys.piece.count});
          found += keys.piece.count;
        }
        check(found == end, "document {}: ring rank {} needs {} keys, and {} are there", doc, rank, end, found);
        first[doc] = at;
        at += end;
      }
    for (const Placed& queries : of_rank[rank]) {
      const int q = static_cast<int>(queries.row), end = end_of(queries.piece);
      check(seen.rows > 0 || queries.piece.first == 0, "a part of document {} lies alone on ring rank {}",
            queries.piece.doc, rank);
      seen.blocks.push_back({.q = q,
                             .qn = queries.piece.count,
                             .k = seen.rows > 0 ? static_cast<int>(first.at(queries.piece.doc)) : q,
                             .kn = end});
    }
  }
  return exchange;
}

}  // namespace switchyard::batch
