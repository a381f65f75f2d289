#include "switching/coalesce.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard::switching {
namespace {

using layout::Box;
using layout::Msg;
using layout::ShardMap;
using testing::ElementsAre;

Box range(i64 lo, i64 hi) { return {1, {lo}, {hi}}; }
ShardMap map(std::vector<layout::Shard> shards) { return {layout::plain({8}), 1, std::move(shards)}; }

const ShardMap kFrom = map({{0, 0, range(0, 8)}}), kTo = map({{1, 0, range(0, 8)}, {2, 0, range(0, 8)}});

/// Messages as ranges of bundles of a box each.
std::vector<Msg> coalesce(const std::vector<Msg>& messages, const std::vector<ShardMap>& from,
                          const std::vector<ShardMap>& to) {
  std::vector<Bundle> bundles;
  for (const Msg& msg : messages)
    bundles.push_back({.holders = {msg.src},
                       .partials = {0},
                       .takers = {msg.dst},
                       .pieces = {{msg.tensor, msg.box, 0}},
                       .elements = msg.box.elements()});
  std::vector<BundleRange> ranges;
  for (size_t i = 0; i < messages.size(); ++i)
    ranges.push_back({messages[i].src, messages[i].dst, &bundles[i], 0, bundles[i].elements});
  return coalesced(std::move(ranges), from, to);
}

TEST(Coalesce, neighbours_between_the_same_ranks_become_one_message) {
  EXPECT_THAT(coalesce({{0, 1, 0, range(4, 8)}, {0, 2, 0, range(0, 4)}, {0, 1, 0, range(0, 4)}}, {kFrom}, {kTo}),
              ElementsAre(Msg{0, 1, 0, range(0, 8)}, Msg{0, 2, 0, range(0, 4)}));
}

TEST(Coalesce, boxes_with_a_gap_or_of_other_tensors_stay_apart) {
  EXPECT_EQ(coalesce({{0, 1, 0, range(5, 8)}, {0, 1, 0, range(0, 4)}}, {kFrom}, {kTo}).size(), 2u);
  EXPECT_EQ(coalesce({{0, 1, 1, range(4, 8)}, {0, 1, 0, range(0, 4)}}, {kFrom, kFrom}, {kTo, kTo}).size(), 2u);
}

TEST(Coalesce, a_message_stays_inside_one_shard_of_each_rank) {
  const std::vector<Msg> halves{{0, 1, 0, range(0, 4)}, {0, 1, 0, range(4, 8)}};
  EXPECT_EQ(coalesce(halves, {map({{0, 0, range(0, 4)}, {0, 0, range(4, 8)}})}, {kTo}), halves);
  EXPECT_EQ(coalesce(halves, {kFrom}, {map({{1, 0, range(0, 4)}, {1, 0, range(4, 8)}})}), halves);
}

TEST(Coalesce, what_the_receiver_holds_in_part_stays_apart) {
  const std::vector<Msg> halves{{0, 1, 0, range(0, 4)}, {0, 1, 0, range(4, 8)}};
  EXPECT_EQ(coalesce(halves, {map({{0, 0, range(0, 8)}, {1, 0, range(0, 4)}})}, {kTo}), halves);
}

}  // namespace
}  // namespace switchyard::switching
