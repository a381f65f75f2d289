#include "batch/balance.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "batch/ring_map.hpp"

namespace switchyard::batch {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

TEST(BalanceOf, TheSlowestReplicaIsComparedWithAnEvenShareAndTheHeaviestDocument) {
  // Work 6, 3 and 3 on two replicas of equal speed: 9 and 3, where 6 each would be even.
  const PhasePlan phase{.strategy = 0,
                        .replica = {{{.T = {9}, .shard = {{{0, 0, 6, 1}, {1, 0, 3, 1}}}}},
                                    {{.T = {4}, .shard = {{{2, 0, 3, 1}, {-1, 0, 1, 1}}}}}}};
  BucketSpec bucket{.max_length = 8, .replicas = 2};
  Balance balance = balance_of(phase, std::vector<i64>{6, 3, 3}, bucket, {});
  EXPECT_THAT(balance.share, ElementsAre(testing::DoubleEq(1.5), testing::DoubleEq(0.5)));
  EXPECT_DOUBLE_EQ(balance.bound, 1);
  // With three times the speed the first has as much time as the second; the document of 6 takes 2/3 of that.
  bucket.pipelines = {{.speed = 3}, {.speed = 1}};
  EXPECT_DOUBLE_EQ(balance_of(phase, std::vector<i64>{6, 3, 3}, bucket, {}).slowest(), 1);
  // Squares, 36 + 9 and 9: the document of 6 alone is above 27.
  bucket.pipelines = {};
  balance = balance_of(phase, std::vector<i64>{6, 3, 3}, bucket, {.linear = 0, .quadratic = 1});
  EXPECT_DOUBLE_EQ(balance.slowest(), 45.0 / 27);
  EXPECT_DOUBLE_EQ(balance.bound, 36.0 / 27);
  EXPECT_THAT(balance_of({.replica = {{}, {}}}, {}, bucket, {}).share, ElementsAre(0, 0)) << "no documents";
}

// Two replicas of two ring ranks; document 0 lies whole on a rank, document 1 too, and rank 1 of both has padding.
class RingBalance : public testing::Test {
 protected:
  const std::vector<i64> lengths_{8, 4};
  const PhasePlan phase_{.replica = {{{.T = {8, 1}, .shard = {{{0, 0, 8, 1}}, {{-1, 0, 1, 1}}}}},
                                     {{.T = {4, 1}, .shard = {{{1, 0, 4, 1}}, {{-1, 0, 1, 1}}}}}}};
  BucketSpec bucket_{.max_length = 8,
                     .replicas = 2,
                     .rings = std::vector<Ring>(2, {.ranks = 2, .ranks_per_host = 2, .costs = {.per_token = 1}})};

  Balance balance() const { return balance_of(phase_, lengths_, bucket_, {}); }
};

TEST_F(RingBalance, the_bound_is_that_of_the_longest_document_on_as_many_ring_ranks_as_are_quickest) {
  // 12 tokens on four ranks: 3 are even; document 0 on two ranks takes 4.
  EXPECT_THAT(balance().share, ElementsAre(DoubleEq(8.0 / 3), DoubleEq(4.0 / 3)));
  EXPECT_DOUBLE_EQ(balance().bound, 4.0 / 3);
  for (Ring& ring : bucket_.rings) ring.costs.per_key_inside = 10;  // now it is quickest whole
  EXPECT_DOUBLE_EQ(balance().bound, 8.0 / 3);
}

TEST_F(RingBalance, stages_of_a_pipeline_share_the_time_of_a_micro_batch) {
  bucket_.pipelines = {{.stages = 2}, {.stages = 1}};  // in one unit of time 4 and 2 tokens
  EXPECT_THAT(balance().share, ElementsAre(DoubleEq(2), DoubleEq(2)));
  EXPECT_DOUBLE_EQ(balance().bound, 1);
}

TEST_F(RingBalance, replicas_without_documents_have_no_share) {
  EXPECT_THAT(balance_of({.replica = {{}, {}}}, {}, bucket_, {}).share, ElementsAre(0, 0));
}

TEST(RingLoads, equal_those_of_the_assignment_that_was_laid_out) {
  std::mt19937 random(3);
  int inner = 0;  // spans that begin behind the first ring rank
  for (int round = 0; round < 40; ++round) {
    const int per_host = 1 << random() % 3, ranks = per_host * (1 + static_cast<int>(random() % 4));
    const Ring ring{.ranks = ranks, .ranks_per_host = per_host, .capacity = 100'000, .costs = {1, 0.01, 0.1, 0.5, 300}};
    std::vector<i64> lengths(1 + random() % 6);
    for (i64& length : lengths) length = 100 + static_cast<i64>(random() % 4000);
    const std::optional<RingAssignment> assigned = assign(lengths, ring);
    ASSERT_TRUE(assigned);
    for (const Span& span : assigned->span) inner += span.first > 0 && span.degree > 1;
    std::vector<PlacedDocument> documents;
    for (size_t i = 0; i < lengths.size(); ++i)
      documents.push_back({static_cast<i64>(i), lengths[i], assigned->span[i]});
    const std::vector<RingLoad> loads = ring_loads(lay_out(documents, ranks, 1), lengths, per_host);
    ASSERT_EQ(loads.size(), assigned->load.size());
    for (size_t rank = 0; rank < loads.size(); ++rank) {
      if (assigned->load[rank].tokens == 0) continue;  // it has padding
      EXPECT_EQ(loads[rank], assigned->load[rank]) << "round " << round << ", rank " << rank;
    }
  }
  EXPECT_GT(inner, 10);
}

}  // namespace
}  // namespace switchyard::batch
