#include "layout/slices.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "layout/overlay.hpp"

namespace switchyard::layout {
namespace {

/// Keeps the first shard of each rank.
void one_per_rank(std::vector<int>& members, const ShardMap& from) {
  size_t kept = 0;
  for (const int member : members) {
    const int rank = from.shards[static_cast<size_t>(member)].rank;
    const auto end = members.begin() + static_cast<std::ptrdiff_t>(kept);
    if (std::none_of(members.begin(), end,
                     [&](int other) { return from.shards[static_cast<size_t>(other)].rank == rank; })) {
      members[kept++] = member;
    }
  }
  members.resize(kept);
}

}  // namespace

std::vector<int> Slice::holders_of(int partial) const {
  std::vector<int> ranks;
  for (size_t i = 0; i < holders.size(); ++i) {
    if (partials[i] == partial) ranks.push_back(holders[i]);
  }
  return ranks;
}

std::vector<Slice> slices(const ShardMap& from, const ShardMap& to, const NarrowHolders& narrow) {
  std::vector<Box> boxes;
  boxes.reserve(from.shards.size() + to.shards.size());
  for (const Shard& shard : from.shards) boxes.push_back(shard.box);
  for (const Shard& shard : to.shards) boxes.push_back(shard.box);
  const int split = static_cast<int>(from.shards.size());  // members below are shards of `from`, the others of `to`
  std::vector<int> wanted, takers;
  const auto only_wanted = [&](std::vector<int>& members) {
    const auto middle = std::lower_bound(members.begin(), members.end(), split);
    wanted.assign(middle, members.end());
    members.erase(middle, members.end());
    if (wanted.empty()) return members.clear();
    one_per_rank(members, from);
    if (narrow) {
      takers.clear();
      for (const int member : wanted) takers.push_back(to.shards[static_cast<size_t>(member - split)].rank);
      narrow(members, takers);
    }
    members.insert(members.end(), wanted.begin(), wanted.end());
  };
  std::vector<Slice> result;
  for (Region& region : overlay(boxes, only_wanted)) {
    Slice slice{.box = region.box, .holders = {}, .partials = {}, .takers = {}};
    for (const int member : region.members) {
      if (member < split) {
        const Shard& shard = from.shards[static_cast<size_t>(member)];
        slice.holders.push_back(shard.rank);
        slice.partials.push_back(shard.partial);
      } else {
        slice.takers.push_back(to.shards[static_cast<size_t>(member - split)].rank);
      }
    }
    check(!slice.holders.empty(), "box {} is wanted by rank {} and held by none", slice.box, slice.takers[0]);
    result.push_back(std::move(slice));
  }
  return result;
}

int nearest_sender(std::span<const int> holders, int receiver, const cluster::Cluster& cluster,
                   std::span<const i64> sent) {
  check(!holders.empty(), "rank {} has nobody to receive from", receiver);
  int best = -1;
  bool best_near = false;
  for (const int holder : holders) {
    const bool near = cluster.same_host(holder, receiver);
    const bool lighter = best >= 0 && sent[static_cast<size_t>(holder)] < sent[static_cast<size_t>(best)];
    if (best < 0 || (near && !best_near) || (near == best_near && lighter)) {
      best = holder;
      best_near = near;
    }
  }
  return best;
}

}  // namespace switchyard::layout
