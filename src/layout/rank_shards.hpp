// The shards of a map, by rank.
#pragma once

#include <vector>

#include "layout/layout.hpp"

namespace switchyard::layout {

/// Finds shards of one rank without a search over all. Refers to the map it was made from.
class RankShards {
 public:
  explicit RankShards(const ShardMap& map);
  /// Index in map.shards of the rank's first shard that contains the box; -1 if there is none.
  int find(int rank, const Box& box) const;

 private:
  const ShardMap& map_;
  std::vector<int> order_;     // shards by rank
  std::vector<size_t> first_;  // first place of a rank in the order; one more behind the last
};

}  // namespace switchyard::layout
