// The policies without relays: every rank that needs a slice gets it from one holder, in one round.
#pragma once

#include <span>

#include "switching/bundle.hpp"
#include "switching/plan.hpp"

namespace switchyard::switching {

/// Plans unit after unit. The loads of the ranks, and whose turn it is, carry over to the next unit.
class DirectPlanner {
 public:
  /// `policy` is greedy, first or round_robin.
  DirectPlanner(Planner policy, const cluster::Cluster& cluster);
  /// Messages of copies, including local ones.
  layout::Rounds switch_unit(std::span<const TensorSlice> slices);
  /// Messages of each partial directly to the owner, then the owner's own sum.
  layout::Rounds reduce_unit(std::span<const TensorSlice> slices);

 private:
  /// Chooses one of the holders, and adds the elements to its load.
  int choose(const std::vector<int>& holders, int receiver, i64 elements);

  Planner policy_;
  const cluster::Cluster& cluster_;
  std::vector<i64> sent_;
  size_t turn_ = 0;
};

}  // namespace switchyard::switching
