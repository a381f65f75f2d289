#include "layout/overlay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "random_maps.hpp"

namespace switchyard::layout {
namespace {

using testing::ElementsAre;

Box box(std::vector<i64> lo, std::vector<i64> hi) {
  Box result = whole(hi);
  std::copy(lo.begin(), lo.end(), result.lo.begin());
  return result;
}

TEST(Overlay, two_overlapping_ranges_give_three_regions) {
  const std::vector<Box> boxes{box({0}, {6}), box({4}, {9})};
  EXPECT_THAT(overlay(boxes),
              ElementsAre(Region{box({0}, {4}), {0}}, Region{box({4}, {6}), {0, 1}}, Region{box({6}, {9}), {1}}));
}

TEST(Overlay, an_edge_of_a_third_box_does_not_cut_where_membership_is_the_same) {
  const std::vector<Box> boxes{box({0, 0}, {4, 4}),
                               box({4, 1}, {8, 3})};  // the second cuts the first's columns in the grid only
  EXPECT_THAT(overlay(boxes), ElementsAre(Region{box({0, 0}, {4, 4}), {0}}, Region{box({4, 1}, {8, 3}), {1}}));
}

TEST(Overlay, of_nothing_or_empty_boxes_is_empty) {
  EXPECT_TRUE(overlay({}).empty());
  EXPECT_TRUE(overlay(std::vector<Box>{box({3}, {3})}).empty());
  EXPECT_EQ(Grid({}).cells(), 0u);
}

TEST(Overlay, narrowing_joins_cells_that_differed_only_in_what_was_dropped) {
  const std::vector<Box> boxes{box({0}, {6}), box({0}, {3})};
  const auto drop_last = [](std::vector<int>& members) { std::erase(members, 1); };
  EXPECT_THAT(overlay(boxes, drop_last), ElementsAre(Region{box({0}, {6}), {0}}));
}

TEST(Overlay, of_boxes_with_different_dims_is_a_bug) {
  EXPECT_THROW(overlay(std::vector<Box>{box({0}, {6}), box({0, 0}, {3, 3})}), InternalError);
}

TEST(Merge, quarters_become_the_whole) {
  EXPECT_THAT(merge({box({0, 0}, {2, 3}), box({2, 3}, {4, 6}), box({0, 3}, {2, 6}), box({2, 0}, {4, 3})}),
              ElementsAre(box({0, 0}, {4, 6})));
}

TEST(Merge, boxes_that_only_share_an_edge_in_part_stay_apart) {
  EXPECT_EQ(merge({box({0, 0}, {2, 3}), box({2, 0}, {4, 4})}).size(), 2u);
  EXPECT_EQ(merge({box({0, 0}, {2, 4}), box({2, 1}, {4, 4})}).size(), 2u);
  EXPECT_TRUE(merge({}).empty());
}

TEST(OverlayProperties, regions_are_disjoint_and_know_their_members) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    std::vector<Box> boxes;
    for (const Shard& shard : random.map(shape, 8, false).shards) boxes.push_back(shard.box);
    for (const Shard& shard : random.map(shape, 8, false).shards) boxes.push_back(shard.box);
    std::vector<std::vector<int>> expected(static_cast<size_t>(shape.elements())), found(expected.size());
    for (size_t b = 0; b < boxes.size(); ++b) {
      each_element(boxes[b], shape.size, [&](size_t e) { expected[e].push_back(static_cast<int>(b)); });
    }
    for (const Region& region : overlay(boxes)) {
      each_element(region.box, shape.size, [&](size_t e) {
        EXPECT_TRUE(found[e].empty());
        found[e] = region.members;
      });
    }
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace switchyard::layout
