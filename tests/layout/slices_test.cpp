#include "layout/slices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"

namespace switchyard::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Shard shard(int rank, i64 lo, i64 hi, int partial = 0) {
  Shard result{rank, partial, whole(std::vector<i64>{hi})};
  result.box.lo[0] = lo;
  return result;
}

ShardMap map(std::vector<Shard> shards, int partials = 1) { return {plain({8}), partials, std::move(shards)}; }

TEST(Slices, name_holders_and_takers_in_the_order_of_their_shards) {
  const auto found = slices(map({shard(3, 0, 8), shard(1, 4, 8)}), map({shard(2, 2, 8), shard(0, 0, 4)}));
  EXPECT_THAT(found, ElementsAre(Slice{shard(0, 0, 2).box, {3}, {0}, {0}}, Slice{shard(0, 2, 4).box, {3}, {0}, {2, 0}},
                                 Slice{shard(0, 4, 8).box, {3, 1}, {0, 0}, {2}}));
}

TEST(Slices, lie_inside_one_shard_of_each_rank) {
  EXPECT_THAT(slices(map({shard(0, 0, 4), shard(0, 4, 8)}), map({shard(1, 0, 8)})),
              ElementsAre(Slice{shard(0, 0, 4).box, {0}, {0}, {1}}, Slice{shard(0, 4, 8).box, {0}, {0}, {1}}));
}

TEST(Slices, name_a_rank_with_two_copies_once) {
  EXPECT_THAT(slices(map({shard(0, 0, 8), shard(0, 0, 8)}), map({shard(1, 0, 8)})),
              ElementsAre(Slice{shard(0, 0, 8).box, {0}, {0}, {1}}));
}

TEST(Slices, know_the_partials) {
  const auto found = slices(map({shard(0, 0, 8, 1), shard(1, 0, 8, 0), shard(2, 0, 8, 1)}, 2), map({shard(1, 0, 8)}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].partials, ElementsAre(1, 0, 1));
  EXPECT_THAT(found[0].holders_of(1), ElementsAre(0, 2));
  EXPECT_THAT(found[0].holders_of(5), ElementsAre());
}

TEST(Slices, that_nobody_wants_are_left_out) {
  EXPECT_EQ(slices(map({shard(0, 0, 8)}), map({shard(1, 3, 4)})).size(), 1u);
}

TEST(Slices, that_nobody_holds_are_a_bug) {
  try {
    slices(map({shard(0, 0, 4)}), map({shard(1, 0, 8)}));
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("box [4,8) is wanted by rank 1 and held by none"));
  }
}

TEST(Slices, narrowing_sees_the_takers) {
  const auto only_first = [](std::vector<int>& shards, const std::vector<int>& takers) {
    EXPECT_THAT(takers, ElementsAre(5));
    shards.resize(1);
  };
  EXPECT_THAT(slices(map({shard(0, 0, 8), shard(1, 0, 4)}), map({shard(5, 0, 8)}), only_first),
              ElementsAre(Slice{shard(0, 0, 8).box, {0}, {0}, {5}}));
}

TEST(NearestSender, is_the_least_loaded_on_the_receivers_host_then_elsewhere) {
  const cluster::Cluster two = cluster::uniform(2, 3);
  const std::vector<i64> sent{5, 0, 0, 9, 9, 8};
  EXPECT_EQ(nearest_sender(std::vector<int>{1, 3, 5}, 4, two, sent), 5);
  EXPECT_EQ(nearest_sender(std::vector<int>{3, 4, 1}, 5, two, sent), 3) << "the first of equals";
  EXPECT_EQ(nearest_sender(std::vector<int>{0, 1, 2}, 4, two, sent), 1);
  EXPECT_THROW(nearest_sender({}, 4, two, sent), InternalError);
}

}  // namespace
}  // namespace switchyard::layout
