// The documents of a range of lengths on the pipelines of a placement, as a step spreads and packs them and assigns
// them to ring ranks.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "batch/planner.hpp"
#include "planner/replicas.hpp"
#include "planner/ring_loads.hpp"
#include "planner/space.hpp"
#include "planner/workload.hpp"

namespace switchyard::planner {

/// Consecutive pipelines that have the same micro-batches.
struct Replica {
  std::vector<PackedSequence> micro_batches{};
  int first = 0, count = 1;
};
using Replicas = std::vector<Replica>;

/// Whatever is asked for is computed once. Refers to the workload.
class Packings {
 public:
  /// all: bounds need all pipelines, not only the heaviest.
  Packings(const UnitCosts& units, const Workload& workload, bool all);

  /// A step's pipelines, each of which is assigned when it is asked for.
  struct Apart {
    /// The documents of one pipeline, and of all others with the same.
    struct Documents {
      int pipeline = 0;  // the first one that has them
      double tokens = 0, attention_pairs = 0;
      std::vector<PackedSequence> micro_batches{};  // empty: not yet assigned
    };
    std::vector<Documents> unlike{};
    std::vector<size_t> of{};  // by pipeline: its documents' number in unlike; kNone: it has none
    static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  };
  /// The pipelines of each step.
  std::vector<Apart>& apart(const Placement& placement, i64 capacity, Range range) const;
  /// Micro-batches of unlike[number], a pipeline of the step; of several ring ranks with the part of the slowest one.
  const std::vector<PackedSequence>& micro_batches(Apart& apart, size_t number, size_t step, const Placement& placement,
                                                   i64 capacity, Range range) const;
  /// All pipelines of each step; tied: so many in a row wait for one another, and one stands for them.
  const std::vector<Replicas>& assigned(const Placement& placement, int tied, i64 capacity, Range range) const;
  /// Micro-batches with padding, on ring ranks in even shares with nothing passed on, from which RingLoads has a lower
  /// bound; of the heaviest pipelines, unless all count or those that wait for one another do.
  const std::vector<Replicas>& even(const Placement& placement, i64 capacity, Range range) const;
  /// The fewest and the most micro-batches of a pipeline.
  std::pair<int, int> micro_batches(const Placement& placement, i64 capacity, Range range) const;

  const RingLoads& ring_loads() const { return ring_loads_; }

 private:
  /// Documents of a range: those of pipeline p are documents[begin[p]] ... documents[begin[p + 1] - 1], longest first.
  struct Spread {
    std::vector<std::uint32_t> documents, begin;
    size_t pipelines() const { return begin.size() - 1; }
    std::span<const std::uint32_t> of(size_t pipeline) const {
      return std::span(documents).subspan(begin[pipeline], begin[pipeline + 1] - begin[pipeline]);
    }
  };
  /// By pipelines, those that are tied, pp, capacity, ends of the range; then with ranks of the code and of rings; then
  /// with the columns of keys that these pass on.
  using BareKey = std::tuple<int, int, int, i64, int, int>;
  using EvenKey = decltype(std::tuple_cat(BareKey(), std::tuple<int, int>()));
  using AssignedKey = decltype(std::tuple_cat(EvenKey(), std::tuple<i64>()));
  static BareKey bare_key(const Placement& p, int tied, i64 capacity, Range range) {
    return {p.pipelines(), tied, p.pp, capacity, range.lo, range.hi};
  }
  AssignedKey assigned_key(const Placement& placement, int tied, i64 capacity, Range range) const;

  /// Lengths of the range's documents, of each step.
  const std::vector<std::vector<i64>>& lengths(Range range) const;
  /// Documents as the batch planner spreads them, of each step.
  const std::vector<Spread>& spread(const Placement& placement, Range range) const;
  /// Those of a pipeline, for the batch planner.
  std::vector<batch::Item> items(std::span<const std::uint32_t> documents, const std::vector<i64>& lengths) const;
  /// Micro-batches without padding, on one ring rank.
  Replicas bare(const Spread& spread, const std::vector<i64>& lengths, const Placement& placement, i64 capacity) const;
  const std::vector<Replicas>& bare(const Placement& placement, i64 capacity, Range range) const;

  RingLoads ring_loads_;
  const Workload& workload_;
  batch::WorkModel work_;
  bool all_;
  mutable std::unordered_map<std::tuple<int, int>, std::vector<std::vector<i64>>, TupleHash> lengths_;
  mutable std::unordered_map<std::tuple<int, int, int, int>, std::vector<Spread>, TupleHash> spread_;
  mutable std::unordered_map<BareKey, std::vector<Replicas>, TupleHash> bare_;
  mutable std::unordered_map<BareKey, std::pair<int, int>, TupleHash> micro_batches_;
  mutable std::unordered_map<EvenKey, std::vector<Replicas>, TupleHash> even_;
  mutable std::unordered_map<AssignedKey, std::vector<Apart>, TupleHash> apart_;
  mutable std::unordered_map<AssignedKey, std::vector<Replicas>, TupleHash> assigned_;
};

}  // namespace switchyard::planner
