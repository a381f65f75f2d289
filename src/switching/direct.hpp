// The policies without relays: every rank that lacks a slice gets it from one holder, in one round.
#pragma once

#include <span>

#include "switching/bundle.hpp"
#include "switching/plan.hpp"

namespace switchyard::switching {

/// Plans unit after unit; what each rank has sent so far, and whose turn it is, carries over.
class DirectPlanner {
 public:
  /// `policy` is greedy, first or round_robin.
  DirectPlanner(Planner policy, const cluster::Cluster& cluster);
  /// Copies, local ones included.
  layout::Rounds switch_unit(std::span<const TensorSlice> slices);
  /// Each partial straight to the owner, then the owner's own.
  layout::Rounds reduce_unit(std::span<const TensorSlice> slices);

 private:
  /// One of the holders; counts what it will send.
  int choose(const std::vector<int>& holders, int receiver, i64 elements);

  Planner policy_;
  const cluster::Cluster& cluster_;
  std::vector<i64> sent_;
  size_t turn_ = 0;
};

}  // namespace switchyard::switching
