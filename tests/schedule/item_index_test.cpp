#include "schedule/item_index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<Item> kStage{{Pass::F, 0, 0}, {Pass::F, 1, 0}, {Pass::B, 1, 0},
                               {Pass::B, 0, 0}, {Pass::W, 1, 0}, {Pass::W, 0, 0}};

TEST(ItemIndex, items_wait_along_the_loop) {
  const Schedule made{.order = {kStage, kStage}, .mbs = 1, .chunks = 2};
  const ItemIndex index(made);
  EXPECT_THAT(index.waits_for({0, 0}), IsEmpty());
  EXPECT_THAT(index.waits_for({0, 1}), ElementsAre(Place{1, 0}));
  EXPECT_THAT(index.waits_for({1, 2}), ElementsAre(Place{1, 1}));
  EXPECT_THAT(index.waits_for({1, 3}), ElementsAre(Place{1, 0}, Place{0, 2}));
  EXPECT_THAT(index.waits_for({1, 5}), ElementsAre(Place{1, 0}, Place{1, 3}));
}

TEST(ItemIndex, items_wait_along_the_v) {
  const Schedule made{.order = {kStage, kStage}, .mbs = 1, .chunks = 2, .placement = Placement::v};
  const ItemIndex index(made);
  EXPECT_EQ(index.position({0, 1}), 3);
  EXPECT_THAT(index.waits_for({1, 1}), ElementsAre(Place{1, 0}));
  EXPECT_THAT(index.waits_for({0, 1}), ElementsAre(Place{1, 1}));
  EXPECT_THAT(index.waits_for({0, 2}), ElementsAre(Place{0, 1}));
  EXPECT_THAT(index.waits_for({1, 3}), ElementsAre(Place{1, 0}, Place{1, 2}));
}

TEST(ItemIndex, every_item_is_visited_once_after_what_it_waits_for) {
  const Schedule made{.order = {kStage, kStage}, .mbs = 1, .chunks = 2};
  const ItemIndex index(made);
  std::vector<Place> seen;
  run_in_order(index, [&](Place place) {
    for (const Place& need : index.waits_for(place)) EXPECT_THAT(seen, testing::Contains(need));
    EXPECT_THAT(seen, testing::Not(testing::Contains(place)));
    seen.push_back(place);
  });
  EXPECT_EQ(seen.size(), 12u);
}

}  // namespace
}  // namespace switchyard::schedule
