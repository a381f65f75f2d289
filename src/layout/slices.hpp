// Slices of a tensor that goes from one map to another: boxes whose elements all have the same holders and takers.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cluster/cluster.hpp"
#include "layout/layout.hpp"

namespace switchyard::layout {

/// A box that lies inside one shard of each rank it names. holders[i] has partial partials[i].
struct Slice {
  Box box;
  std::vector<int> holders, partials, takers;
  /// The ranks that hold copies of one partial.
  std::vector<int> holders_of(int partial) const;
  bool operator==(const Slice&) const = default;
};

/// Narrows the shards of `from` (indices, ascending) that count as holders of a cell, given the ranks that want it.
using NarrowHolders = std::function<void(std::vector<int>& shards, const std::vector<int>& takers)>;

/// The slices that some shard of `to` wants, disjoint, in order of their lower corners. A rank is named once among the
/// holders, for the first of its shards that contains the slice; holders and takers are in order of their shards.
/// Throws InternalError if no rank holds a slice that is wanted.
std::vector<Slice> slices(const ShardMap& from, const ShardMap& to, const NarrowHolders& narrow = {});

/// The published sender choice: among the holders on the receiver's host the one that has sent least so far; only if
/// there is none, the least loaded one elsewhere. `sent`: elements sent so far by each rank. On a tie, the first.
int nearest_sender(std::span<const int> holders, int receiver, const cluster::Cluster& cluster,
                   std::span<const i64> sent);

}  // namespace switchyard::layout
