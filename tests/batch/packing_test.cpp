#include "batch/packing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

using testing::ElementsAre;

std::vector<Item> items_of(const std::vector<i64>& lengths) {
  std::vector<Item> items;
  for (const i64 length : lengths)
    items.push_back({.doc = static_cast<i64>(items.size()), .tokens = length, .work = static_cast<double>(length)});
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.tokens > b.tokens; });
  return items;
}

std::vector<i64> tokens_of(const std::vector<Row>& rows) {
  std::vector<i64> tokens;
  for (const Row& row : rows) tokens.push_back(row.tokens);
  return tokens;
}

TEST(Packing, WithoutAPipelineRowsAreAsFewAsPossible) {
  EXPECT_THAT(tokens_of(pack_rows(items_of({6, 5, 4, 3, 2}), {10}, 1)), ElementsAre(10, 10));
  EXPECT_TRUE(pack_rows({}, {10}, 4).empty());
}

TEST(Packing, EqualNumbersOfRowsAreLevelled) {
  // First fit alone would make 10 and 4.
  EXPECT_THAT(tokens_of(pack_rows(items_of({4, 4, 2, 2, 1, 1}), {10}, 1)), ElementsAre(7, 7));
}

TEST(Packing, APipelineGetsAMicroBatchPerStageWhereThatLevelsThem) {
  EXPECT_THAT(tokens_of(pack_rows(items_of({2, 2, 2, 2}), {100}, 4)), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(pack_rows(items_of({2, 2}), {100}, 4).size(), 2u);
}

TEST(Packing, AGiantThatSetsThePaceKeepsTheRestTogether) {
  // However the small ones are spread, the pipeline waits for the 50: two rows do.
  EXPECT_THAT(tokens_of(pack_rows(items_of({50, 1, 1, 1, 1, 1, 1}), {50}, 4)), ElementsAre(50, 6));
}

TEST(Packing, FirstFitIsTheFallbackWhereLevellingNeedsMoreRows) {
  // By lightest row 5 + 4 and 5 + 3 leave no room for the last 3; first fit makes 5 + 5 and 4 + 3 + 3.
  EXPECT_THAT(tokens_of(pack_rows(items_of({5, 5, 4, 3, 3}), {10}, 1)), ElementsAre(10, 10));
}

TEST(Packing, RowsNeverExceedTheCapacityAndStayNearTheFewest) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<i64> lengths(1 + random() % 400);
    for (i64& length : lengths) length = 1 + static_cast<i64>(random() % (1 + random() % 100));
    const std::vector<Item> items = items_of(lengths);
    for (const int stages : {1, 4}) {
      const auto rows = pack_rows(items, {100}, stages);
      i64 tokens = 0, least = 0;
      std::vector<Item> placed;
      for (const Row& row : rows) {
        EXPECT_LE(row.tokens, 100);
        tokens += row.tokens;
        placed.insert(placed.end(), row.items.begin(), row.items.end());
      }
      for (const i64 length : lengths) least += length;
      EXPECT_EQ(tokens, least);
      std::sort(placed.begin(), placed.end(), [](const Item& a, const Item& b) { return a.doc < b.doc; });
      for (std::size_t i = 0; i < placed.size(); ++i) EXPECT_EQ(placed[i].doc, static_cast<i64>(i));
      // First-fit decreasing needs at most 11/9 of the optimum and one more; levelling may add an eighth.
      const double fewest = std::max<double>(static_cast<double>(least) / 100, 1);
      EXPECT_LE(static_cast<double>(rows.size()),
                std::max((fewest * 11 / 9 + 2) * (stages > 1 ? 1.125 : 1) + 1, static_cast<double>(stages)));
      EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.work > b.work; }));
    }
  }
}

TEST(Packing, ADocumentThatFitsNoRowIsABug) { EXPECT_THROW(pack_rows(items_of({11}), {10}, 1), InternalError); }

TEST(Packing, LanesAreFilledLongestProcessingTimeFirst) {
  const auto lanes = spread_over_lanes(items_of({7, 5, 4, 3, 1}), std::vector<double>{1, 1}, 1);
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_THAT(lanes[0], ElementsAre(Item{0, 7, 7}, Item{3, 3, 3}));
  EXPECT_THAT(lanes[1], ElementsAre(Item{1, 5, 5}, Item{2, 4, 4}, Item{4, 1, 1}));
}

TEST(Packing, ALaneWithAGiantInAPipelineGetsLessOfTheRest) {
  // Two stages: beside 8 the giant's lane is delayed by its excess over an even row (16 / 2 = 8).
  const auto tokens = [](const std::vector<Item>& lane) {
    i64 sum = 0;
    for (const Item& item : lane) sum += item.tokens;
    return sum;
  };
  const std::vector<Item> items = items_of({12, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  EXPECT_EQ(tokens(spread_over_lanes(items, std::vector<double>{1, 1}, 1)[0]), 16);
  EXPECT_EQ(tokens(spread_over_lanes(items, std::vector<double>{1, 1}, 2)[0]), 14);
}

TEST(PackRows, hold_no_more_documents_than_they_may) {
  for (const int stages : {1, 4}) {
    const std::vector<Row> rows = pack_rows(items_of({5, 4, 3, 2, 1, 1, 1}), {100, 2}, stages);
    for (const Row& row : rows) EXPECT_LE(row.items.size(), 2u);
    EXPECT_EQ(rows.size(), 4u);
  }
  EXPECT_EQ(pack_rows(items_of({5, 4, 3}), {100, 1}, 1).size(), 3u);
}

}  // namespace
}  // namespace switchyard::batch
