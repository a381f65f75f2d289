#include "layout/rank_shards.hpp"

#include <algorithm>
#include <numeric>

namespace switchyard::layout {

RankShards::RankShards(const ShardMap& map) : map_(map), order_(map.shards.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return rank(a) < rank(b); });
}

int RankShards::find(int of_rank, const Box& box) const {
  auto at = std::lower_bound(order_.begin(), order_.end(), of_rank,
                             [&](int shard, int wanted) { return rank(shard) < wanted; });
  for (; at != order_.end() && rank(*at) == of_rank; ++at) {
    if (map_.shards[static_cast<size_t>(*at)].box.contains(box)) return *at;
  }
  return -1;
}

}  // namespace switchyard::layout
