#include "switching/direct.hpp"

#include <algorithm>
#include <map>

#include "base/errors.hpp"

namespace switchyard::switching {
namespace {

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

DirectPlanner::DirectPlanner(Planner policy, const cluster::Cluster& cluster)
    : policy_(policy), cluster_(cluster), sent_(static_cast<size_t>(cluster.ranks())) {
  check(policy != Planner::relay, "relay is no direct policy");
}

int DirectPlanner::choose(const std::vector<int>& holders, int receiver, i64 elements) {
  int source = holders[0];
  if (policy_ == Planner::greedy) source = layout::nearest_sender(holders, receiver, cluster_, sent_);
  if (policy_ == Planner::round_robin) source = holders[turn_++ % holders.size()];
  sent_[static_cast<size_t>(source)] += elements;
  return source;
}

layout::Rounds DirectPlanner::switch_unit(std::span<const TensorSlice> slices) {
  layout::Rounds plan{{{}}};
  for (const auto& [tensor, slice] : slices) {
    for (const int taker : slice.takers) {
      const int source = contains(slice.holders, taker) ? taker : choose(slice.holders, taker, slice.box.elements());
      plan.rounds[0].push_back({.src = source, .dst = taker, .tensor = tensor, .box = slice.box});
    }
  }
  return plan;
}

layout::Rounds DirectPlanner::reduce_unit(std::span<const TensorSlice> slices) {
  layout::Rounds plan{{{}, {}}};
  for (const auto& [tensor, slice] : slices) {
    check(slice.takers.size() == 1, "gradients reduced to {} owners", slice.takers.size());
    const int owner = slice.takers[0];
    std::map<int, std::vector<int>> copies;  // by partial
    for (size_t i = 0; i < slice.holders.size(); ++i) copies[slice.partials[i]].push_back(slice.holders[i]);
    for (const auto& [partial, holders] : copies) {
      const bool here = contains(holders, owner);
      const int source = here ? owner : choose(holders, owner, slice.box.elements());
      plan.rounds[here ? 1 : 0].push_back({.src = source, .dst = owner, .tensor = tensor, .box = slice.box});
    }
  }
  return plan;
}

}  // namespace switchyard::switching
