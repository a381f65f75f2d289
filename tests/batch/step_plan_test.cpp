#include "batch/step_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard::batch {
namespace {

using testing::ElementsAre;

constexpr int kTokens = 32, kRanks = 4;

std::vector<double> pairs_per_rank(const std::vector<std::vector<Piece>>& shards) {
  std::vector<double> pairs;
  for (const std::vector<Piece>& shard : shards) pairs.push_back(attention_pairs(MicroBatch{{}, {shard}}));
  return pairs;
}

TEST(AttentionPairs, of_a_document_over_four_ring_ranks) {
  std::vector<std::vector<Piece>> plain, zigzag, stripe;
  for (int r = 0; r < kRanks; ++r) {
    plain.push_back({{0, 8 * r, 8, 1}});
    zigzag.push_back({{0, 4 * r, 4, 1}, {0, 4 * (2 * kRanks - 1 - r), 4, 1}});
    stripe.push_back({{0, r, 8, kRanks}});
  }
  EXPECT_THAT(pairs_per_rank(plain), ElementsAre(36, 100, 164, 228));
  EXPECT_THAT(pairs_per_rank(zigzag), ElementsAre(132, 132, 132, 132));
  EXPECT_THAT(pairs_per_rank(stripe), ElementsAre(120, 128, 136, 144));
  for (const auto& shards : {plain, zigzag, stripe}) {
    const MicroBatch micro_batch{{8, 8, 8, 8}, shards};
    EXPECT_EQ(attention_pairs(micro_batch), kTokens * (kTokens + 1) / 2);
    EXPECT_EQ(squared_lengths(micro_batch), kTokens * kTokens);
    EXPECT_EQ(longest(micro_batch), kTokens);
  }
}

TEST(StepPlan, sums_count_documents_and_not_pieces_or_padding) {
  const MicroBatch whole{{16}, {{{0, 0, 9, 1}, {1, 0, 4, 1}, {-1, 0, 3, 1}}}};
  const MicroBatch parts{
      {8, 0, 6},
      {{{0, 0, 2, 1}, {0, 6, 3, 1}, {1, 0, 1, 1}, {1, 3, 1, 1}, {-1, 0, 1, 1}}, {}, {{0, 2, 4, 1}, {1, 1, 2, 1}}}};
  for (const MicroBatch& micro_batch : {whole, parts}) {
    EXPECT_EQ(attention_pairs(micro_batch), 45 + 10);
    EXPECT_EQ(squared_lengths(micro_batch), 81 + 16);
    EXPECT_EQ(longest(micro_batch), 9);
  }
  EXPECT_EQ(tokens(whole), 16);
  EXPECT_EQ(tokens(parts), 14);
}

TEST(StepPlan, sums_of_documents_of_many_tokens_are_exact) {
  const int n = 1 << 24;
  const MicroBatch micro_batch{{n}, {{{0, 0, n, 1}}}};
  EXPECT_EQ(attention_pairs(micro_batch), 0.5 * n * (n + 1.0));
  EXPECT_EQ(squared_lengths(micro_batch), i64{n} * n);
}

}  // namespace
}  // namespace switchyard::batch
