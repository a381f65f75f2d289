#include "batch/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "batch/balance.hpp"
#include "batch/validate.hpp"

namespace switchyard::batch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<BucketSpec> three_buckets() {
  return {{.max_length = 4096, .strategy = 7, .replicas = 1, .multiple = 4, .pipelines = {{.stages = 2}}},
          {.max_length = 1024, .strategy = 8, .replicas = 2, .multiple = 2},
          {.max_length = 256, .strategy = 9, .replicas = 4}};
}

std::vector<i64> log_uniform(std::mt19937_64& random, std::size_t count, i64 longest) {
  std::uniform_real_distribution<double> exponent(0, std::log(static_cast<double>(longest) + 1));
  std::vector<i64> lengths(count);
  for (i64& length : lengths) length = std::clamp<i64>(static_cast<i64>(std::exp(exponent(random))), 1, longest);
  return lengths;
}

double imbalance(const PhasePlan& phase, const std::vector<i64>& lengths, const WorkModel& work) {
  const std::vector<double> loads = replica_work(phase, lengths, work);
  const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
  return *std::max_element(loads.begin(), loads.end()) / mean;
}

TEST(Planner, EachSequenceGoesToTheSmallestBucketThatFits) {
  const auto buckets = three_buckets();
  for (const auto& [length, bucket] :
       std::vector<std::pair<i64, int>>{{1, 2}, {256, 2}, {257, 1}, {1024, 1}, {1025, 0}, {4096, 0}})
    EXPECT_EQ(bucket_of(length, buckets), bucket) << length;
}

TEST(Planner, AMicroBatchHoldsItsTokensOrThatManyDocumentsOfFullLength) {
  EXPECT_EQ(micro_batch_capacity({.max_length = 48}), 48);
  EXPECT_EQ(micro_batch_capacity({.max_length = 48, .micro_batch_sequences = 3}), 144);
  EXPECT_EQ(micro_batch_capacity({.max_length = 48, .micro_batch_tokens = 60, .micro_batch_sequences = 3}), 60);
  const i64 most = std::numeric_limits<i64>::max();
  EXPECT_GT(micro_batch_capacity({.max_length = 48, .micro_batch_sequences = most}), most - 48);
}

TEST(Planner, MicroBatchesOfSeveralDocumentsAreValid) {
  const std::vector<i64> lengths{48, 40, 1, 30, 48, 7, 3, 12};
  for (const i64 documents : {1, 2, 3, 100}) {
    const std::vector<BucketSpec> buckets{{.max_length = 48, .micro_batch_sequences = documents}};
    const StepPlan plan = plan_batch(0, lengths, buckets, {1, 0.01});
    EXPECT_NO_THROW(validate(plan, lengths, buckets)) << documents;
    EXPECT_EQ(plan.phases[0].replica[0].size(),
              (lengths.size() + static_cast<size_t>(documents) - 1) / static_cast<size_t>(documents));
  }
}

TEST(Planner, AStreamFillsRowsInTheOrderOfDocuments) {
  // Rows of 16 with documents padded to 4: 5 + 3, 7 + 1 | 9 + 3, 2 + 2 | 16 | four of 1 + 3 | 1 + 3, padded to 8.
  const std::vector<i64> lengths{5, 7, 9, 2, 16, 1, 1, 1, 1, 1};
  const std::vector<BucketSpec> buckets{
      {.max_length = 16, .strategy = 3, .replicas = 3, .multiple = 8, .stream = true, .document_multiple = 4}};
  const StepPlan plan = plan_batch(0, lengths, buckets, {1, 0.1});
  EXPECT_NO_THROW(validate(plan, lengths, buckets));
  ASSERT_EQ(plan.phases.size(), 1u);
  const auto& replica = plan.phases[0].replica;
  ASSERT_EQ(replica.size(), 3u);
  EXPECT_THAT(
      replica[0],
      ElementsAre(
          MicroBatch{{16}, {{{0, 0, 5}, {-1, 0, 3}, {1, 0, 7}, {-1, 0, 1}}}},
          MicroBatch{{16},
                     {{{5, 0, 1}, {-1, 0, 3}, {6, 0, 1}, {-1, 0, 3}, {7, 0, 1}, {-1, 0, 3}, {8, 0, 1}, {-1, 0, 3}}}}));
  EXPECT_THAT(replica[1], ElementsAre(MicroBatch{{16}, {{{2, 0, 9}, {-1, 0, 3}, {3, 0, 2}, {-1, 0, 2}}}},
                                      MicroBatch{{8}, {{{9, 0, 1}, {-1, 0, 3}, {-1, 0, 4}}}}));
  EXPECT_THAT(replica[2], ElementsAre(MicroBatch{{16}, {{{4, 0, 16}}}}));
}

TEST(Planner, RingRanksHaveEquallyManyTokensOfAStream) {
  std::vector<i64> lengths;
  for (i64 length = 1; length <= 40; ++length) lengths.push_back(length);
  const std::vector<BucketSpec> buckets{
      {.max_length = 48, .multiple = 2, .stream = true, .document_multiple = 2, .rings = {{.ranks = 4}}}};
  const StepPlan plan = plan_batch(0, lengths, buckets, {1, 0.1});
  EXPECT_NO_THROW(validate(plan, lengths, buckets));
  i64 rows = 0;
  for (const MicroBatch& micro_batch : plan.phases[0].replica[0]) {
    EXPECT_THAT(micro_batch.T, testing::Each(micro_batch.T[0]));
    rows += micro_batch.T[0];
  }
  EXPECT_EQ(rows, 2 * 8 * (1 + 2 + 3 + 4 + 5));  // documents of up to 8, 16, ... tokens have 2, 4, ... on a rank
}

TEST(Planner, RingRanksHaveRoomForAnEighthMoreThanAnEvenShareOrForWhatDocumentsNeed) {
  // Keys that come take so long that each document would stay whole.
  BucketSpec bucket{.max_length = 100, .rings = {{.ranks = 2, .ranks_per_host = 2, .costs = {.per_token = 1}}}};
  bucket.rings[0].costs.per_key_inside = 1000;
  const auto planned = [&](const std::vector<i64>& lengths) {
    const StepPlan plan = plan_batch(0, lengths, std::vector{bucket}, {});
    EXPECT_NO_THROW(validate(plan, lengths, std::vector{bucket}));
    return plan.phases[0].replica[0][0].T;
  };
  bucket.micro_batch_tokens = 100;  // 50 on each rank, and 6 more
  EXPECT_THAT(planned({56, 44}), testing::UnorderedElementsAre(56, 44));
  EXPECT_THAT(planned({57, 43}), testing::Each(testing::Le(56)));
  bucket.uniform_degree = true;
  EXPECT_THAT(planned({90, 1}), testing::Each(testing::Le(46))) << "both have two ranks";
  bucket.rings[0].ranks = 3;
  bucket.max_length = bucket.micro_batch_tokens = 3;  // one on each rank: with the degree 3 the second finds none
  EXPECT_THAT(planned({2, 1}), testing::Contains(2));
}

TEST(Planner, ARowOfAStreamHasSoManyDocumentsAtMost) {
  const std::vector<i64> lengths(7, 2);
  const std::vector<BucketSpec> buckets{{.max_length = 16, .replicas = 2, .micro_batch_sequences = 3, .stream = true}};
  const StepPlan plan = plan_batch(0, lengths, buckets, {});
  EXPECT_NO_THROW(validate(plan, lengths, buckets));
  EXPECT_THAT(plan.phases[0].replica[0], testing::SizeIs(2));
  EXPECT_THAT(plan.phases[0].replica[1], testing::SizeIs(1));
  EXPECT_EQ(plan.phases[0].replica[0][1].shard[0], (std::vector<Piece>{{6, 0, 2}}));
}

TEST(Planner, PhasesRunLongestThenShortestThenUpward) {
  EXPECT_THAT(published_order(1), ElementsAre(0));
  EXPECT_THAT(published_order(3), ElementsAre(0, 2, 1));
  EXPECT_THAT(published_order(4), ElementsAre(0, 3, 2, 1));
  const std::vector<i64> lengths{100, 600, 3000};
  const StepPlan plan = plan_batch(3, lengths, three_buckets(), {});
  ASSERT_EQ(plan.phases.size(), 3u);
  EXPECT_EQ(plan.phases[0].strategy, 7);
  EXPECT_EQ(plan.phases[1].strategy, 9);
  EXPECT_EQ(plan.phases[2].strategy, 8);
  EXPECT_EQ(plan.step, 3);
  EXPECT_EQ(plan.valid_tokens, 3700 - 3);
  EXPECT_EQ(plan_batch(3, lengths, three_buckets(), {}, std::vector<int>{2, 1, 0}).phases[0].strategy, 9);
}

TEST(Planner, AMicroBatchIsPaddedToTheMultipleAndNotToTheBucket) {
  const std::vector<BucketSpec> buckets{{.max_length = 64, .multiple = 4}};
  const StepPlan plan = plan_batch(0, std::vector<i64>{9, 5}, buckets, {});
  const std::vector<std::vector<MicroBatch>> replicas{{{.T = {16},
                                                        .shard = {{{.doc = 0, .first = 0, .count = 9},
                                                                   {.doc = 1, .first = 0, .count = 5},
                                                                   {.doc = -1, .first = 0, .count = 2}}}}}};
  EXPECT_EQ(plan.phases.at(0).replica, replicas);
  EXPECT_DOUBLE_EQ(padding_share(plan), 2.0 / 16);
}

TEST(Planner, BucketsWithoutDocumentsHaveNoPhaseAndReplicasMayBeEmpty) {
  const StepPlan plan = plan_batch(0, std::vector<i64>{10}, three_buckets(), {});
  ASSERT_EQ(plan.phases.size(), 1u);
  ASSERT_EQ(plan.phases[0].replica.size(), 4u);
  EXPECT_EQ(plan.phases[0].replica[0].size(), 1u);
  for (int replica = 1; replica < 4; ++replica)
    EXPECT_TRUE(plan.phases[0].replica[static_cast<std::size_t>(replica)].empty());
  EXPECT_TRUE(plan_batch(0, {}, three_buckets(), {}).phases.empty());
}

TEST(Planner, EveryPlanOfRandomDocumentsAndReplicasIsValidAndTheSameTwice) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    std::vector<BucketSpec> buckets;
    for (i64 max_length = 3000; max_length > 3 && buckets.size() < 4; max_length /= pick(2, 6)) {
      BucketSpec bucket{
          .max_length = max_length, .strategy = pick(0, 3), .replicas = pick(1, 9), .multiple = pick(1, 16)};
      if (pick(0, 1)) bucket.micro_batch_tokens = max_length + pick(0, 5000);
      if (pick(0, 1))
        for (int replica = 0; replica < bucket.replicas; ++replica)
          bucket.pipelines.push_back({.speed = static_cast<double>(pick(1, 3)), .stages = pick(1, 8)});
      buckets.push_back(bucket);
    }
    const WorkModel work{.linear = 1, .quadratic = pick(0, 1) * 0.001};
    const std::vector<i64> lengths = log_uniform(random, static_cast<std::size_t>(pick(0, 300)), 3000);
    const StepPlan plan = plan_batch(seed, lengths, buckets, work);
    ASSERT_NO_THROW(validate(plan, lengths, buckets));
    ASSERT_EQ(plan, plan_batch(seed, lengths, buckets, work));
  }
}

TEST(Planner, DocumentsOfOneTokenAndEqualDocumentsAndOneGiantArePlaced) {
  const auto buckets = three_buckets();
  for (const std::vector<i64>& lengths :
       {std::vector<i64>(1000, 1), std::vector<i64>(64, 256), std::vector<i64>(64, 1024), [] {
          std::vector<i64> giant(300, 5);
          giant[17] = 4096;
          return giant;
        }()}) {
    const StepPlan plan = plan_batch(0, lengths, buckets, {.linear = 1, .quadratic = 1e-3});
    validate(plan, lengths, buckets);
  }
  const std::vector<i64> ones(1000, 1);
  EXPECT_EQ(plan_batch(0, ones, buckets, {}).valid_tokens, 0);
  // 16 documents of full length for each of 4 replicas: 16 full micro-batches, no padding.
  const StepPlan equal = plan_batch(0, std::vector<i64>(64, 256), buckets, {});
  for (const auto& replica : equal.phases[0].replica) EXPECT_EQ(replica.size(), 16u);
  EXPECT_EQ(padding_share(equal), 0);
}

TEST(Planner, ReplicasAreLevelToAPercentWhereNoDocumentIsTooLarge) {
  std::mt19937_64 random(1);
  const WorkModel work{.linear = 1, .quadratic = 1.0 / 4096};
  const std::vector<i64> lengths = log_uniform(random, 2000, 4096);
  const std::vector<BucketSpec> buckets{{.max_length = 4096, .replicas = 8, .micro_batch_tokens = 8192}};
  EXPECT_LT(imbalance(plan_batch(0, lengths, buckets, work).phases[0], lengths, work), 1.01);
}

TEST(Planner, BalanceIsByWorkNotByTokens) {
  // With quadratic work one document of 1000 tokens outweighs 10 of 100 tenfold.
  std::vector<i64> lengths(10, 100);
  lengths.insert(lengths.begin(), 1000);
  const std::vector<BucketSpec> buckets{{.max_length = 1000, .replicas = 2}};
  const StepPlan linear = plan_batch(0, lengths, buckets, {.linear = 1, .quadratic = 0});
  EXPECT_THAT(replica_work(linear.phases[0], lengths, {}), ElementsAre(1000, 1000));
  lengths.insert(lengths.end(), 20, 100);
  const StepPlan quadratic = plan_batch(0, lengths, buckets, {.linear = 0, .quadratic = 1});
  EXPECT_THAT(replica_work(quadratic.phases[0], lengths, {}), ElementsAre(1000, 3000));
}

TEST(Planner, AFasterReplicaGetsWorkInProportion) {
  const std::vector<i64> lengths(900, 10);
  const std::vector<BucketSpec> buckets{{.max_length = 100, .replicas = 3, .pipelines = {{1}, {2}, {1.5}}}};
  EXPECT_THAT(replica_work(plan_batch(0, lengths, buckets, {}).phases[0], lengths, {}), ElementsAre(2000, 4000, 3000));
}

TEST(Planner, AHundredThousandDocumentsAreBalancedToAThousandth) {
  std::mt19937_64 random(2);
  const std::vector<i64> lengths = log_uniform(random, 100'000, 32768);
  std::vector<BucketSpec> buckets{
      {.max_length = 32768, .strategy = 0, .replicas = 2, .multiple = 8, .pipelines = {{1, 4}, {1, 4}}},
      {.max_length = 16384, .strategy = 1, .replicas = 8, .multiple = 4},
      {.max_length = 4096, .strategy = 2, .replicas = 64}};
  buckets[1].pipelines.assign(8, {.stages = 2});
  buckets[2].pipelines.resize(64);
  for (std::size_t replica = 0; replica < 64; ++replica)
    buckets[2].pipelines[replica].speed += static_cast<double>(replica) * 0.01;
  const WorkModel work{.linear = 1, .quadratic = 1e-4};
  const StepPlan plan = plan_batch(0, lengths, buckets, work);
  validate(plan, lengths, buckets);
  ASSERT_EQ(plan.phases.size(), 3u);
  EXPECT_LT(imbalance(plan.phases[0], lengths, work), 1.001);
  EXPECT_LT(imbalance(plan.phases[2], lengths, work), 1.001);
  // The shortest bucket runs on replicas of many speeds: each gets work in proportion.
  const std::vector<double> loads = replica_work(plan.phases[1], lengths, work);
  double speed = 0;
  for (const Pipeline& pipeline : buckets[2].pipelines) speed += pipeline.speed;
  const double even = std::accumulate(loads.begin(), loads.end(), 0.0) / speed;
  for (std::size_t replica = 0; replica < loads.size(); ++replica)
    EXPECT_NEAR(loads[replica] / buckets[2].pipelines[replica].speed / even, 1, 0.001) << replica;
}

TEST(Planner, ASequenceLongerThanEveryBucketIsRefusedWithTheRemedy) {
  EXPECT_THAT(message_of([] { plan_batch(0, std::vector<i64>{5000}, three_buckets(), {}); }),
              HasSubstr("a sequence of 5000 tokens is longer than the longest bucket (4096 tokens). Raise "
                        "bucket[0].max_length, or lower "
                        "batch.context."));
}

TEST(Planner, OfBucketsWithTheSameLengthTheFirstIsUsed) {
  auto buckets = three_buckets();
  buckets[2].max_length = 1024;
  const std::vector<i64> lengths = {4096, 1024, 3, 1025};
  const StepPlan plan = plan_batch(0, lengths, buckets, {});
  ASSERT_EQ(plan.phases.size(), 2u);
  EXPECT_EQ(plan.phases[0].strategy, buckets[0].strategy);
  EXPECT_EQ(plan.phases[1].strategy, buckets[1].strategy);
  validate(plan, lengths, buckets);
}

TEST(Planner, UsedBucketsAreThoseThatAPlanHasPhasesOf) {
  const auto buckets = three_buckets();
  const std::vector<i64> lengths = {4096, 3};
  const std::vector<BucketSpec> outer = {buckets[0], buckets[2]};
  const StepPlan plan = plan_batch(0, lengths, outer, {});
  const std::vector<BucketSpec> used = used_buckets(plan, buckets);
  ASSERT_EQ(used.size(), 2u);
  EXPECT_EQ(used[0].strategy, buckets[0].strategy);
  EXPECT_EQ(used[1].strategy, buckets[2].strategy);
  // A document whose bucket is left out belongs to the next longer one.
  const std::vector<i64> joined = {4096, 1000, 3};
  const StepPlan longer = plan_batch(0, joined, outer, {});
  validate(longer, joined, used_buckets(longer, buckets));
  EXPECT_THROW(validate(longer, joined, buckets), InternalError);
}

TEST(Planner, BucketsThatRiseAreRefused) {
  auto buckets = three_buckets();
  buckets[2].max_length = 1025;
  EXPECT_THAT(
      message_of([&] { plan_batch(0, {}, buckets, {}); }),
      HasSubstr("bucket[2].max_length = 1025 is above bucket[1].max_length = 1024. List the buckets longest first."));
  buckets[2].max_length = 0;
  EXPECT_THAT(message_of([&] { plan_batch(0, {}, buckets, {}); }),
              HasSubstr("bucket[2].max_length = 0: give at least 1 token."));
  buckets[0].max_length = i64{1} << 40;
  EXPECT_THAT(message_of([&] { plan_batch(0, {}, buckets, {}); }),
              HasSubstr("a sequence may have at most 2147483647 tokens"));
}

TEST(Planner, AMicroBatchSmallerThanASequenceIsRefused) {
  auto buckets = three_buckets();
  buckets[1].micro_batch_tokens = 1000;
  EXPECT_THAT(message_of([&] { plan_batch(0, {}, buckets, {}); }),
              HasSubstr("bucket[1].micro_batch_tokens = 1000 is below its max_length = 1024: a sequence must fit in a "
                        "micro-batch. Raise it to 1024"));
}

TEST(Planner, BrokenCallsAreInternalErrors) {
  EXPECT_THROW(plan_batch(0, {}, three_buckets(), {}, std::vector<int>{0, 1}), InternalError);
  EXPECT_THROW(plan_batch(0, {}, three_buckets(), {}, std::vector<int>{0, 1, 1}), InternalError);
  EXPECT_THROW(plan_batch(0, std::vector<i64>{0}, three_buckets(), {}), InternalError);
  auto buckets = three_buckets();
  buckets[1].pipelines = {{1}};
  EXPECT_THROW(plan_batch(0, {}, buckets, {}), InternalError);
  buckets[1].pipelines = {{1}, {0}};
  EXPECT_THROW(plan_batch(0, {}, buckets, {}), InternalError);
  buckets[1].pipelines = {{1}, {1, 0}};
  EXPECT_THROW(plan_batch(0, {}, buckets, {}), InternalError);
}

}  // namespace
}  // namespace switchyard::batch
