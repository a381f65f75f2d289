// Assignment of the documents of a micro-batch to its ring ranks: a degree of ring attention for each document.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/hash.hpp"
#include "batch/ring_map.hpp"

namespace switchyard::batch {

/// Costs of a ring rank's work, in seconds of all passes.
struct RingCosts {
  double per_token = 0;       // all but attention
  double per_pair = 0;        // attention, by pairs of a query and a key
  double per_key_inside = 0;  // keys and values of a token that come from the same host,
  double per_key_across = 0;  // and from another one
  double per_ring_step = 0;   // fixed
};

/// The work of a ring rank in a micro-batch. steps: exchanges of keys and values, one less than the largest degree.
struct RingLoad {
  i64 tokens = 0, pairs = 0;
  ReceivedKeys keys{};
  int steps = 0;
  bool operator==(const RingLoad&) const = default;
};

/// What documents bring to the ranks of a span, by their tokens, the span's first rank, degree and direction, and ring
/// ranks of a host.
using KnownLoads = std::unordered_map<std::tuple<i64, int, int, bool, int>, std::vector<RingLoad>, TupleHash>;

/// The ring ranks of a replica. Each has room for `capacity` tokens; ranks_per_host of them are a host. key_bytes: of a
/// token's keys, values and gradients between two ring ranks, in all passes. known: what assignments share, one after
/// the other; null: nothing.
struct Ring {
  int ranks = 1, ranks_per_host = 1;
  i64 capacity = 0;
  RingCosts costs{};
  i64 key_bytes = 0;
  std::shared_ptr<KnownLoads> known{};
};

/// Time of a ring rank. Keys and values arrive while it computes attention, so the longer of the two counts.
double seconds(const RingLoad& load, const RingCosts& costs);

/// span[i]: of document i. load[r]: of ring rank r. No assignment of these documents takes less than `bound`.
struct RingAssignment {
  std::vector<Span> span;
  std::vector<RingLoad> load;
  double seconds = 0, bound = 0;  // seconds: of the slowest rank
};

/// Spreads documents of these lengths over the ring ranks, so that the slowest takes little time. Spans keep to hosts:
/// one of up to ranks_per_host ranks lies in one host, a longer one starts or ends at a host's edge. Empty if no
/// assignment within the capacity was found. The result is a function of the arguments alone.
std::optional<RingAssignment> assign(std::span<const i64> lengths, const Ring& ring);

/// The same with one degree for all documents, which divides the ranks: the quickest such degree.
std::optional<RingAssignment> assign_uniform(std::span<const i64> lengths, const Ring& ring);

}  // namespace switchyard::batch
