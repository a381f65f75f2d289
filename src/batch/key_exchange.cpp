#include "batch/key_exchange.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/errors.hpp"
#include "batch/ring_map.hpp"

namespace switchyard::batch {
namespace {

// A piece with its first row in a ring rank's shard. entry: by host, the rank that gets it from another host.
struct Placed {
  int rank = 0;
  i64 row = 0;
  Piece piece{};
  std::vector<int> entry{};
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

class Planner {
 public:
  Planner(const MicroBatch& micro_batch, const RingHosts& hosts) : hosts_(hosts) {
    const auto ranks = micro_batch.shard.size();
    exchange_.seen.resize(ranks);
    first_.resize(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::span<const Piece> shard = micro_batch.shard[rank];
      of_rank_.push_back(placed(shard, static_cast<int>(rank)));
      for (const Placed& piece : of_rank_.back()) of_document_[piece.piece.doc].push_back(piece);
      ends_.push_back(ends_of(shard));
      exchange_.seen[rank].rows = keys_brought_together(shard);
      if (exchange_.seen[rank].rows == 0) continue;
      i64 at = 0;
      for (const auto& [doc, end] : ends_[rank]) first_[rank][doc] = std::exchange(at, at + end);
    }
    for (auto& [doc, pieces] : of_document_)
      for (Placed& piece : pieces) find_entries(piece);
  }

  KeyExchange made() && {
    for (size_t rank = 0; rank < of_rank_.size(); ++rank) {
      for (const auto& [doc, first] : first_[rank]) bring_together(doc, static_cast<int>(rank));
      for (const Placed& queries : of_rank_[rank]) add_block(queries);
    }
    while (!rounds_.empty() && rounds_.back().empty()) rounds_.pop_back();
    exchange_.rounds = std::move(rounds_);
    return std::move(exchange_);
  }

 private:
  bool sees(int rank, const Piece& keys) const {
    const auto end = ends_[static_cast<size_t>(rank)].find(keys.doc);
    return end != ends_[static_cast<size_t>(rank)].end() && keys.first < end->second;
  }

  void find_entries(Placed& keys) const {
    if (hosts_.ranks.size() == 1) return;
    const auto needs = [&](int rank) { return sees(rank, keys.piece); };
    for (size_t host = 0; host < hosts_.ranks.size(); ++host)
      keys.entry.push_back(hosts_.first_from(keys.rank, static_cast<int>(host), needs));
  }

  void bring_together(i64 doc, int rank) {
    SeenKeys& seen = exchange_.seen[static_cast<size_t>(rank)];
    const i64 end = ends_[static_cast<size_t>(rank)].at(doc);
    i64 found = 0;
    for (const Placed& keys : of_document_.at(doc)) {
      if (keys.piece.first >= end) continue;
      found += keys.piece.count;
      const i64 at = row_of(rank, keys.piece);
      const int host = hosts_.host[static_cast<size_t>(rank)];
      const int entry = host == hosts_.host[static_cast<size_t>(keys.rank)] ? rank : keys.entry[static_cast<size_t>(host)];
      if (keys.rank == rank)
        seen.own.push_back({keys.row, at, keys.piece.count});
      else if (entry == rank)
        rounds_[0].push_back({keys.rank, rank, keys.row, at, keys.piece.count, false});
      else
        rounds_[1].push_back({entry, rank, row_of(entry, keys.piece), at, keys.piece.count, true});
    }
    check(found == end, "document {}: ring rank {} needs {} keys, and {} are there", doc, rank, end, found);
  }

  // Of keys among those that a rank sees.
  i64 row_of(int rank, const Piece& keys) const {
    return first_[static_cast<size_t>(rank)].at(keys.doc) + keys.first;
  }

  void add_block(const Placed& queries) {
    SeenKeys& seen = exchange_.seen[static_cast<size_t>(queries.rank)];
    const i64 doc = queries.piece.doc;
    check(seen.rows > 0 || queries.piece.first == 0, "a part of document {} lies alone on ring rank {}", doc,
          queries.rank);
    const i64 k = seen.rows > 0 ? first_[static_cast<size_t>(queries.rank)].at(doc) : queries.row;
    seen.blocks.push_back({.q = static_cast<int>(queries.row),
                           .qn = queries.piece.count,
                           .k = static_cast<int>(k),
                           .kn = end_of(queries.piece)});
  }

  const RingHosts& hosts_;
  std::vector<std::vector<Placed>> of_rank_;
  std::map<i64, std::vector<Placed>> of_document_;
  std::vector<std::map<i64, i64>> ends_;   // by rank and document
  std::vector<std::map<i64, i64>> first_;  // of a document's keys among those that a rank sees
  KeyExchange exchange_;
  std::vector<std::vector<KeyMessage>> rounds_{2};
};

}  // namespace

i64 keys_brought_together(std::span<const Piece> shard) {
  i64 own = 0, seen = 0;
  for (const Piece& piece : shard) own += piece.doc >= 0 ? piece.count : 0;
  for (const auto& [doc, end] : ends_of(shard)) seen += end;
  return seen == own ? 0 : seen;
}

KeyExchange key_exchange(const MicroBatch& micro_batch, std::span<const int> hosts) {
  const std::vector<int> one(micro_batch.shard.size(), 0);
  check(hosts.empty() || hosts.size() == one.size(), "{} ring ranks on hosts of {}", one.size(), hosts.size());
  const RingHosts places(hosts.empty() ? one : std::vector<int>(hosts.begin(), hosts.end()));
  return Planner(micro_batch, places).made();
}

}  // namespace switchyard::batch
