#include "layout/slices.hpp"

#include <algorithm>
#include <utility>

#include "base/errors.hpp"
#include "layout/overlay.hpp"

namespace switchyard::layout {
namespace {

/// Keeps in a list of a map's shards the first one of each rank.
class FirstOfRanks {
 public:
  explicit FirstOfRanks(const ShardMap& map) : map_(map) {
    for (const Shard& shard : map.shards)
      if (static_cast<size_t>(shard.rank) >= seen_.size()) seen_.resize(static_cast<size_t>(shard.rank) + 1);
  }
  void keep_in(std::vector<int>& members) {
    ++list_;
    std::erase_if(members, [&](int member) {
      return std::exchange(seen_[static_cast<size_t>(map_.shards[static_cast<size_t>(member)].rank)], list_) == list_;
    });
  }

 private:
  const ShardMap& map_;
  std::vector<i64> seen_;  // last list in which a rank was
  i64 list_ = 0;
};

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
  FirstOfRanks first_of_ranks(from);
  const auto only_wanted = [&](std::vector<int>& members) {
    const auto middle = std::lower_bound(members.begin(), members.end(), split);
    wanted.assign(middle, members.end());
    members.erase(middle, members.end());
    if (wanted.empty()) return members.clear();
    first_of_ranks.keep_in(members);
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
  int best = holders[0];
  for (const int holder : holders) {
    const bool near = cluster.same_host(holder, receiver), best_near = cluster.same_host(best, receiver);
    if (near != best_near ? near : sent[static_cast<size_t>(holder)] < sent[static_cast<size_t>(best)]) best = holder;
  }
  return best;
}

}  // namespace switchyard::layout
