#include "batch/packing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
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

std::vector<i64> tokens_of(const std::vector<PackedSequence>& micro_batches) {
  std::vector<i64> tokens;
  for (const PackedSequence& micro_batch : micro_batches) tokens.push_back(micro_batch.tokens);
  return tokens;
}

TEST(Packing, WithoutAPipelineMicroBatchesAreAsFewAsPossible) {
  EXPECT_THAT(tokens_of(pack_sequences(items_of({6, 5, 4, 3, 2}), {10}, 1)), ElementsAre(10, 10));
  EXPECT_TRUE(pack_sequences({}, {10}, 4).empty());
}

TEST(Packing, EqualNumbersOfMicroBatchesAreLevelled) {
  // First fit alone would make 10 and 4.
  EXPECT_THAT(tokens_of(pack_sequences(items_of({4, 4, 2, 2, 1, 1}), {10}, 1)), ElementsAre(7, 7));
}

TEST(Packing, APipelineGetsAMicroBatchPerStageWhereThatLevelsThem) {
  EXPECT_THAT(tokens_of(pack_sequences(items_of({2, 2, 2, 2}), {100}, 4)), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(pack_sequences(items_of({2, 2}), {100}, 4).size(), 2u);
}

TEST(Packing, AGiantThatSetsThePaceKeepsTheRestTogether) {
  // However the small ones are spread, the pipeline waits for the 50: two micro-batches do.
  EXPECT_THAT(tokens_of(pack_sequences(items_of({50, 1, 1, 1, 1, 1, 1}), {50}, 4)), ElementsAre(50, 6));
}

TEST(Packing, FirstFitIsTheFallbackWhereLevellingNeedsMoreMicroBatches) {
  // By lightest micro-batch 5 + 4 and 5 + 3 leave no room for the last 3; first fit makes 5 + 5 and 4 + 3 + 3.
  EXPECT_THAT(tokens_of(pack_sequences(items_of({5, 5, 4, 3, 3}), {10}, 1)), ElementsAre(10, 10));
}

TEST(Packing, MicroBatchesNeverExceedTheCapacityAndStayNearTheFewest) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<i64> lengths(1 + random() % 400);
    for (i64& length : lengths) length = 1 + static_cast<i64>(random() % (1 + random() % 100));
    const std::vector<Item> items = items_of(lengths);
    for (const int stages : {1, 4}) {
      const auto micro_batches = pack_sequences(items, {100}, stages);
      i64 tokens = 0, least = 0;
      std::vector<Item> placed;
      for (const PackedSequence& micro_batch : micro_batches) {
        EXPECT_LE(micro_batch.tokens, 100);
        tokens += micro_batch.tokens;
        placed.insert(placed.end(), micro_batch.items.begin(), micro_batch.items.end());
      }
      for (const i64 length : lengths) least += length;
      EXPECT_EQ(tokens, least);
      std::sort(placed.begin(), placed.end(), [](const Item& a, const Item& b) { return a.doc < b.doc; });
      for (std::size_t i = 0; i < placed.size(); ++i) EXPECT_EQ(placed[i].doc, static_cast<i64>(i));
      // First-fit decreasing needs at most 11/9 of the optimum and one more; levelling may add an eighth.
      const double fewest = std::max<double>(static_cast<double>(least) / 100, 1);
      EXPECT_LE(static_cast<double>(micro_batches.size()),
                std::max((fewest * 11 / 9 + 2) * (stages > 1 ? 1.125 : 1) + 1, static_cast<double>(stages)));
      EXPECT_TRUE(std::is_sorted(micro_batches.begin(), micro_batches.end(),
                                 [](const PackedSequence& a, const PackedSequence& b) { return a.work > b.work; }));
    }
  }
}

// Every document into the lightest micro-batch of `count` that has room, the first of equals; nothing if there is none.
std::vector<PackedSequence> levelled(const std::vector<Item>& items, Capacity capacity, std::size_t count) {
  std::vector<PackedSequence> micro_batches(count);
  for (const Item& item : items) {
    PackedSequence* lightest = nullptr;
    for (PackedSequence& one : micro_batches)
      if (one.tokens + item.tokens <= capacity.tokens &&
          (capacity.items == 0 || static_cast<i64>(one.items.size()) < capacity.items) &&
          (!lightest || one.work < lightest->work))
        lightest = &one;
    if (!lightest) return {};
    lightest->items.push_back(item);
    lightest->tokens += item.tokens;
    lightest->work += item.work;
  }
  return micro_batches;
}

TEST(Packing, TheChoiceIsThatOfTryingEveryNumberOfMicroBatches) {
  int more_than_fewest = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<i64> lengths(1 + random() % 60);
    const std::size_t spread = 1 + random() % 100;
    for (i64& length : lengths) length = 1 + static_cast<i64>(random() % spread);
    std::vector<Item> items = items_of(lengths);
    for (Item& item : items) item.work += 0.01 * static_cast<double>(item.tokens * item.tokens);
    const Capacity capacity{100 << random() % 3, static_cast<i64>(random() % 4) * 5};
    const int stages = 1 + static_cast<int>(random() % 24);
    double sum = 0;
    for (const Item& item : items) sum += item.work;
    const auto time = [&](const std::vector<PackedSequence>& micro_batches) {
      return sum + (stages - 1) * std::ranges::max(micro_batches, {}, &PackedSequence::work).work;
    };
    const std::vector<PackedSequence> packed = pack_sequences(items, capacity, stages);
    const auto fewest = pack_sequences(items, capacity, 1).size();  // that of first fit
    std::vector<std::size_t> counts;
    for (std::size_t count = fewest; count <= static_cast<std::size_t>(stages); ++count) counts.push_back(count);
    if (stages > 1) counts.insert(counts.end(), {fewest + (fewest + 31) / 32, fewest + (fewest + 7) / 8});
    std::ranges::sort(counts);
    std::vector<std::vector<PackedSequence>> all = {pack_sequences(items, capacity, 1)};
    for (const std::size_t count : counts)
      if (count > fewest && count <= items.size())
        if (auto some = levelled(items, capacity, count); !some.empty()) all.push_back(std::move(some));
    const double best = time(std::ranges::min(all, {}, time));
    const auto chosen = std::ranges::find_if(all, [&](const auto& one) { return time(one) <= best * 1.01; });
    std::ranges::stable_sort(*chosen, std::greater<>(), &PackedSequence::work);
    ASSERT_EQ(packed.size(), chosen->size());
    for (std::size_t i = 0; i < packed.size(); ++i) EXPECT_EQ(packed[i].items, (*chosen)[i].items);
    more_than_fewest += packed.size() > fewest;
  }
  EXPECT_GT(more_than_fewest, 50);
}

TEST(Packing, ADocumentThatFitsNoMicroBatchIsABug) {
  EXPECT_THROW(pack_sequences(items_of({11}), {10}, 1), InternalError);
}

TEST(Packing, ReplicasAreFilledLongestProcessingTimeFirst) {
  const auto replicas = spread_over_replicas(items_of({7, 5, 4, 3, 1}), std::vector<Pipeline>(2, {1, 1}));
  ASSERT_EQ(replicas.size(), 2u);
  EXPECT_THAT(replicas[0], ElementsAre(Item{0, 7, 7}, Item{3, 3, 3}));
  EXPECT_THAT(replicas[1], ElementsAre(Item{1, 5, 5}, Item{2, 4, 4}, Item{4, 1, 1}));
}

TEST(Packing, AReplicaWithAGiantInAPipelineGetsLessOfTheRest) {
  // Two stages: beside 8 the giant's replica is delayed by its excess over an even micro-batch (16 / 2 = 8).
  const auto tokens = [](const std::vector<Item>& replica) {
    i64 sum = 0;
    for (const Item& item : replica) sum += item.tokens;
    return sum;
  };
  const std::vector<Item> items = items_of({12, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  EXPECT_EQ(tokens(spread_over_replicas(items, std::vector<Pipeline>(2, {1, 1}))[0]), 16);
  EXPECT_EQ(tokens(spread_over_replicas(items, std::vector<Pipeline>(2, {1, 2}))[0]), 14);
}

TEST(Packing, ADocumentThatFillsNoPipelineGoesToAReplicaWithoutOne) {
  const auto longest_on = [](const std::vector<Pipeline>& pipelines) {
    const auto replicas = spread_over_replicas(items_of({12, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}), pipelines);
    return replicas[0].front().tokens == 12 ? 0 : 1;
  };
  EXPECT_EQ(longest_on({{4, 4}, {4, 1}}), 1);
  EXPECT_EQ(longest_on({{4, 1}, {4, 4}}), 0);
  EXPECT_EQ(longest_on({{4, 4}, {1, 1}}), 0) << "a slow replica takes longer for it than four stages one by one";
}

TEST(PackMicroBatches, are_an_even_number_in_pairs) {
  const auto paired = [](std::vector<i64> lengths, Capacity capacity) {
    return tokens_of(pack_sequences(items_of(lengths), capacity, 1, true));
  };
  EXPECT_THAT(paired({6, 5, 4, 3, 2}, {20}), ElementsAre(11, 9)) << "one would do";
  EXPECT_THAT(paired({6, 5, 4, 3, 2}, {10}), ElementsAre(10, 10));
  EXPECT_THAT(paired({5, 5, 5, 5, 1, 1}, {9}), ElementsAre(6, 6, 5, 5));
  EXPECT_THAT(paired({7, 6, 5}, {10}), ElementsAre(7, 6, 5)) << "no document for a fourth one";
  EXPECT_THAT(paired({7}, {10}), ElementsAre(7));
}

TEST(PackMicroBatches, hold_no_more_documents_than_they_may) {
  for (const int stages : {1, 4}) {
    const std::vector<PackedSequence> micro_batches = pack_sequences(items_of({5, 4, 3, 2, 1, 1, 1}), {100, 2}, stages);
    for (const PackedSequence& micro_batch : micro_batches) EXPECT_LE(micro_batch.items.size(), 2u);
    EXPECT_EQ(micro_batches.size(), 4u);
  }
  EXPECT_EQ(pack_sequences(items_of({5, 4, 3}), {100, 1}, 1).size(), 3u);
}

}  // namespace
}  // namespace switchyard::batch
