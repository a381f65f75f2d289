// Index map of ring attention: which tokens of a document each ring rank has, which keys and values its queries need,
// and what it receives for them. Source: Ring Attention, arXiv 2310.01889; two chunks for each rank, so that causal
// masks leave all ranks equal work: Llama 3, arXiv 2407.21783, section 3.3.2.
#pragma once

#include <span>
#include <vector>

#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// Ring ranks [first, first + degree) of a micro-batch, which share a document. Rank first + p has place p in it, or
/// place degree - 1 - p where it is mirrored.
struct Span {
  int first = 0, degree = 1;
  bool mirrored = false;
  bool operator==(const Span&) const = default;
};

/// A document of a micro-batch: its number in the step, its length in tokens, and the ring ranks that have it.
struct PlacedDocument {
  i64 doc = 0, tokens = 0;
  Span span{};
};

/// The pieces of a document on a ring rank, in order of tokens; none outside its span. The document has 2 * degree
/// chunks, chunk i from token floor(tokens * i / (2 * degree)) on; place p has chunks p and 2 * degree - 1 - p. Chunks
/// that touch are one piece, empty ones are none.
std::vector<Piece> pieces_on(const PlacedDocument& document, int rank);

/// Tokens of a document's equal parts on so many ranks, with the padding that makes them multiples of `multiple`. It is
/// even if there are several, as each has two chunks.
inline i64 padded_part(i64 tokens, int ranks, i64 multiple) {
  const i64 all = multiple * ranks;
  return (tokens + all - 1) / all * multiple;
}

/// The micro-batch of these documents on so many ring ranks, each padded to the multiple, at least one. With a
/// document_multiple above 1, each rank's part of a document is padded to padded_part() before. Documents keep their
/// order.
MicroBatch lay_out(std::span<const PlacedDocument> documents, int ring_ranks, i64 multiple, i64 document_multiple = 1);

/// What the queries of a piece see of the keys of a piece of the same document: nothing, those up to each query itself
/// (the same piece), or all. Both come from pieces_on.
enum class Mask { nothing, causal, full };
Mask mask_of(const Piece& queries, const Piece& keys);

/// Hosts of ring ranks, numbered from 0. ranks: of each host, ascending; a rank's place in its host is its position
/// there.
struct RingHosts {
  explicit RingHosts(std::vector<int> host_of_each);
  /// The rank of a host to which the keys of a rank on another one cross: the first that needs them, counted from the
  /// place in the host that their holder has in its own, so that a host's ranks share what crosses; -1: none does.
  template <class Needs>
  int first_from(int holder, int to_host, const Needs& needs) const;

  std::vector<int> host, place;
  std::vector<std::vector<int>> ranks;
  int widest = 0;  // ranks of the host with most
};

/// Tokens whose keys and values a ring rank receives in one pass, from its own host and from others.
struct ReceivedKeys {
  i64 inside = 0, across = 0;
  bool operator==(const ReceivedKeys&) const = default;
};

/// Keys that each rank of the document's span receives, first to last. Ring ranks [i * ranks_per_host, (i + 1) *
/// ranks_per_host) are a host. A piece crosses to a host once, to RingHosts::first_from, which passes it on inside.
std::vector<ReceivedKeys> received_keys(const PlacedDocument& document, int ranks_per_host);

template <class Needs>
int RingHosts::first_from(int holder, int to_host, const Needs& needs) const {
  const std::vector<int>& there = ranks[static_cast<std::size_t>(to_host)];
  for (int hops = 0; hops < widest; ++hops) {
    const auto at = static_cast<std::size_t>((place[static_cast<std::size_t>(holder)] + hops) % widest);
    if (at < there.size() && needs(there[at])) return there[at];
  }
  return -1;
}

}  // namespace switchyard::batch
