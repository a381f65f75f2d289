#include "layout/rank_shards.hpp"

#include <gtest/gtest.h>

namespace switchyard::layout {
namespace {

TEST(RankShards, find_the_first_shard_of_the_rank_that_contains_the_box) {
  const auto range = [](i64 lo, i64 hi) { return Box{1, {lo}, {hi}}; };
  const ShardMap map{
      plain({8}), 1, {{5, 0, range(0, 4)}, {2, 0, range(0, 8)}, {5, 0, range(4, 8)}, {5, 0, range(0, 8)}}};
  const RankShards shards(map);
  EXPECT_EQ(shards.find(5, range(1, 3)), 0);
  EXPECT_EQ(shards.find(5, range(4, 8)), 2);
  EXPECT_EQ(shards.find(5, range(3, 5)), 3);
  EXPECT_EQ(shards.find(2, range(3, 5)), 1);
  for (const int rank : {-1, 3, 6}) EXPECT_EQ(shards.find(rank, range(3, 5)), -1);
  EXPECT_EQ(shards.find(2, range(3, 9)), -1);
}

}  // namespace
}  // namespace switchyard::layout
