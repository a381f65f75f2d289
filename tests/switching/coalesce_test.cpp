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

TEST(Coalesce, what_is_joined_does_not_depend_on_how_many_there_are) {
  constexpr int kReceivers = 64;
  constexpr i64 kRows = 1000;  // rows of each; all together are worked on in parts, one after another or side by side
  const Box whole{1, {0}, {kRows}};
  ShardMap from{layout::plain({kRows}), 1, {{0, 0, whole}}}, to{layout::plain({kRows}), 1, {}};
  std::vector<Msg> rows, joined;
  for (int receiver = 1; receiver <= kReceivers; ++receiver) {
    to.shards.push_back({receiver, 0, whole});
    for (i64 row = 0; row < kRows; ++row) rows.push_back({0, receiver, 0, range(row, row + 1)});
    joined.push_back({0, receiver, 0, whole});
  }
  EXPECT_EQ(coalesce(rows, {from}, {to}), joined);
}

}  // namespace
}  // namespace switchyard::switching
