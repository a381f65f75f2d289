#include "batch/ring_map.hpp"

#include <algorithm>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::batch {

std::vector<Piece> pieces_on(const PlacedDocument& document, int rank) {
  const auto& [doc, tokens, span] = document;
  if (rank < span.first || rank >= span.first + span.degree) return {};
  const int place = span.mirrored ? span.first + span.degree - 1 - rank : rank - span.first;
  const int chunks = 2 * span.degree;
  std::vector<Piece> pieces;
  for (const int chunk : {place, chunks - 1 - place}) {
    const auto first = static_cast<int>(tokens * chunk / chunks);
    const int count = static_cast<int>(tokens * (chunk + 1) / chunks) - first;
    if (count == 0) continue;
    if (!pieces.empty() && end_of(pieces.back()) == first)
      pieces.back().count += count;
    else
      pieces.push_back({.doc = doc, .first = first, .count = count});
  }
  return pieces;
}

MicroBatch lay_out(std::span<const PlacedDocument> documents, int ring_ranks, i64 multiple, i64 document_multiple) {
  check(document_multiple == 1 || document_multiple % 2 == 0, "documents are padded to a multiple of {}",
        document_multiple);
  const auto ranks = static_cast<std::size_t>(ring_ranks);
  MicroBatch out{.T = std::vector<i64>(ranks), .shard = std::vector<std::vector<Piece>>(ranks)};
  const auto add = [&](std::size_t rank, const Piece& piece) {
    if (piece.count == 0) return;
    out.shard[rank].push_back(piece);
    out.T[rank] += piece.count;
  };
  for (const PlacedDocument& document : documents) {
    const Span& span = document.span;
    check(span.first >= 0 && span.degree >= 1 && span.first + span.degree <= ring_ranks,
          "document {} lies on ring ranks {} to {} of {}", document.doc, span.first, span.first + span.degree - 1,
          ring_ranks);
    for (int rank = span.first; rank < span.first + span.degree; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const i64 before = out.T[r];
      for (const Piece& piece : pieces_on(document, rank)) add(r, piece);
      const i64 part = out.T[r] - before;
      if (document_multiple > 1) add(r, padding(padded_part(document.tokens, span.degree, document_multiple) - part));
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    add(rank,
        out.T[rank] == 0 ? Piece{.doc = -1, .count = static_cast<int>(multiple)} : padding_of(out.T[rank], multiple));
  return out;
}

Mask mask_of(const Piece& queries, const Piece& keys) {
  if (queries == keys) return Mask::causal;
  return keys.first < queries.first ? Mask::full : Mask::nothing;
}

RingHosts::RingHosts(std::vector<int> host_of_each) : host(std::move(host_of_each)) {
  for (std::size_t rank = 0; rank < host.size(); ++rank) {
    const auto of = static_cast<std::size_t>(host[rank]);
    if (of >= ranks.size()) ranks.resize(of + 1);
    place.push_back(static_cast<int>(ranks[of].size()));
    ranks[of].push_back(static_cast<int>(rank));
    widest = std::max(widest, place.back() + 1);
  }
}

std::vector<ReceivedKeys> received_keys(const PlacedDocument& document, int ranks_per_host) {
  const int first = document.span.first, end = first + document.span.degree;
  std::vector<std::vector<Piece>> pieces;
  for (int rank = first; rank < end; ++rank) pieces.push_back(pieces_on(document, rank));
  const auto of = [&](int rank) { return static_cast<std::size_t>(rank - first); };
  std::vector<ReceivedKeys> received(pieces.size());
  for (int rank = first; rank < end; ++rank) {  // all keys before its last piece but those of its first one
    const std::vector<Piece>& own = pieces[of(rank)];
    if (!own.empty()) received[of(rank)].inside = own.back().first - (own.size() > 1 ? own.front().count : 0);
  }
  const int last_host = (end - 1) / ranks_per_host;
  std::vector<int> hosts(static_cast<std::size_t>((last_host + 1) * ranks_per_host));
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) hosts[rank] = static_cast<int>(rank) / ranks_per_host;
  const RingHosts ring(std::move(hosts));
  for (int holder = first; holder < end; ++holder)
    for (const Piece& keys : pieces[of(holder)]) {
      const auto needs = [&](int rank) {
        return rank >= first && rank < end && !pieces[of(rank)].empty() &&
               mask_of(pieces[of(rank)].back(), keys) == Mask::full;
      };
      for (int host = first / ranks_per_host; host <= last_host; ++host) {
        const int entry = host == holder / ranks_per_host ? -1 : ring.first_from(holder, host, needs);
        if (entry < 0) continue;
        received[of(entry)].inside -= keys.count;
        received[of(entry)].across += keys.count;
      }
    }
  return received;
}

}  // namespace switchyard::batch
