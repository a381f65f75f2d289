#include "layout/rank_shards.hpp"

#include <algorithm>
#include <numeric>

namespace switchyard::layout {

RankShards::RankShards(const ShardMap& map) : map_(map), order_(map.shards.size()) {
  int ranks = 0;
  for (const Shard& shard : map.shards) ranks = std::max(ranks, shard.rank + 1);
  first_.resize(static_cast<size_t>(ranks) + 1);
  for (const Shard& shard : map.shards) ++first_[static_cast<size_t>(shard.rank) + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<size_t> next = first_;
  for (size_t shard = 0; shard < map.shards.size(); ++shard)
    order_[next[static_cast<size_t>(map.shards[shard].rank)]++] = static_cast<int>(shard);
}

int RankShards::find(int rank, const Box& box) const {
  if (rank < 0 || static_cast<size_t>(rank) + 1 >= first_.size()) return -1;
  for (size_t at = first_[static_cast<size_t>(rank)]; at < first_[static_cast<size_t>(rank) + 1]; ++at) {
    if (map_.shards[static_cast<size_t>(order_[at])].box.contains(box)) return order_[at];
  }
  return -1;
}

}  // namespace switchyard::layout
