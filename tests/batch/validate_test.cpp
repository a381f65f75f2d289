#include "batch/validate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/errors.hpp"
#include "batch/balance.hpp"

namespace switchyard::batch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<i64> kLengths{6, 3, 20};
const std::vector<BucketSpec> kBuckets{{.max_length = 32, .strategy = 1, .replicas = 1, .multiple = 8},
                                       {.max_length = 16, .strategy = 0, .replicas = 2, .multiple = 4}};

// Documents 0 and 1 in one micro-batch of bucket 1, document 2 alone in bucket 0.
StepPlan good() {
  return {.step = 5,
          .valid_tokens = 26,
          .phases = {
              {.strategy = 1, .replica = {{{.T = {24}, .shard = {{{2, 0, 20, 1}, {-1, 0, 4, 1}}}}}}},
              {.strategy = 0, .replica = {{{.T = {12}, .shard = {{{0, 0, 6, 1}, {1, 0, 3, 1}, {-1, 0, 3, 1}}}}}, {}}}}};
}

std::string error_of(const std::function<void(StepPlan&)>& damage) {
  StepPlan plan = good();
  damage(plan);
  try {
    validate(plan, kLengths, kBuckets);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "valid";
}

MicroBatch& micro_batch(StepPlan& plan) { return plan.phases[1].replica[0][0]; }
std::vector<Piece>& pieces(StepPlan& plan) { return micro_batch(plan).shard[0]; }

TEST(Validate, AGoodPlanPasses) {
  EXPECT_EQ(error_of([](StepPlan&) {}), "valid");
}

TEST(Validate, AMissingDocumentIsNamed) {
  EXPECT_THAT(error_of([](StepPlan& plan) {
                pieces(plan).erase(pieces(plan).begin() + 1), pieces(plan).back().count = 2, micro_batch(plan).T = {8};
              }),
              HasSubstr("document 1: 0 of 3 tokens are placed"));
}

TEST(Validate, AMissingTokenIsNamed) {
  EXPECT_THAT(
      error_of([](StepPlan& plan) { pieces(plan)[0].count = 5, pieces(plan)[1].count = 3, pieces(plan)[2].count = 4; }),
      HasSubstr("12, more than a multiple of 4"));
  EXPECT_THAT(error_of([](StepPlan& plan) {
                pieces(plan) = {{0, 1, 5, 1}, {1, 0, 3, 1}}, micro_batch(plan).T = {8};
              }),
              HasSubstr("document 0: 5 of 6 tokens"));
}

TEST(Validate, ADocumentPlacedTwiceIsNamed) {
  EXPECT_THAT(error_of([](StepPlan& plan) {
                pieces(plan)[2] = {1, 0, 3, 1};
              }),
              HasSubstr("phase 1, replica 0, micro-batch 0: document 1 of 3 tokens has 6"));
  EXPECT_THAT(error_of([](StepPlan& plan) {
                pieces(plan) = {{0, 0, 3, 1}, {0, 2, 3, 1}, {1, 0, 3, 1}, {-1, 0, 3, 1}};
              }),
              HasSubstr("token 2 of document 0 is placed twice"));
}

TEST(Validate, ADocumentOverTwoMicroBatchesIsNamed) {
  EXPECT_THAT(error_of([](StepPlan& plan) {
                pieces(plan) = {{0, 0, 5, 1}, {1, 0, 3, 1}};
                micro_batch(plan).T = {8};
                plan.phases[1].replica[1] = {{.T = {4}, .shard = {{{0, 5, 1, 1}, {-1, 0, 3, 1}}}}};
              }),
              HasSubstr("replica 1, micro-batch 0: document 0 is also in another micro-batch"));
}

TEST(Validate, PiecesOutsideTheirDocumentAreNamed) {
  EXPECT_THAT(error_of([](StepPlan& plan) { pieces(plan)[0].first = 1; }),
              HasSubstr("piece 1 + 6 * 1 of document 0 of 6 tokens"));
  EXPECT_THAT(error_of([](StepPlan& plan) { pieces(plan)[0].stride = 2; }), HasSubstr("piece 0 + 6 * 2 of document 0"));
  EXPECT_THAT(error_of([](StepPlan& plan) { pieces(plan)[0].doc = 3; }), HasSubstr("document 3 of 3"));
}

TEST(Validate, WrongMicroBatchSizesAndPaddingAreNamed) {
  EXPECT_THAT(error_of([](StepPlan& plan) { micro_batch(plan).T = {16}; }),
              HasSubstr("pieces of 12 tokens on ring rank 0 instead of 16"));
  EXPECT_THAT(error_of([](StepPlan& plan) { micro_batch(plan).T = {14}; }),
              HasSubstr("14 tokens are not a multiple of 4"));
  EXPECT_THAT(error_of([](StepPlan& plan) { micro_batch(plan).T = {16}, pieces(plan)[2].count = 7; }),
              HasSubstr("9 tokens padded to 16, more than a multiple of 4"));
  EXPECT_THAT(error_of([](StepPlan& plan) { std::swap(pieces(plan)[1], pieces(plan)[2]); }),
              HasSubstr("padding that is not last"));
  EXPECT_THAT(error_of([](StepPlan& plan) { pieces(plan)[2].count = 0; }), HasSubstr("a piece of 0 tokens"));
}

TEST(Validate, AMicroBatchBeyondItsCapacityIsNamed) {
  const std::vector<i64> lengths{16, 4};
  const StepPlan plan{
      .step = 0,
      .valid_tokens = 18,
      .phases = {{.strategy = 0, .replica = {{{.T = {20}, .shard = {{{0, 0, 16, 1}, {1, 0, 4, 1}}}}}, {}}}}};
  try {
    validate(plan, lengths, kBuckets);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("20 tokens in a micro-batch of 16"));
  }
}

TEST(Validate, AMicroBatchOfTooManyDocumentsIsNamed) {
  const std::vector<i64> lengths{8, 4};
  const StepPlan plan{.step = 0,
                      .valid_tokens = 10,
                      .phases = {{.strategy = 0, .replica = {{{.T = {12}, .shard = {{{0, 0, 8, 1}, {1, 0, 4, 1}}}}}}}}};
  EXPECT_NO_THROW(validate(plan, lengths, std::vector<BucketSpec>{{.max_length = 8, .micro_batch_sequences = 2}}));
  try {
    validate(plan, lengths,
             std::vector<BucketSpec>{{.max_length = 8, .micro_batch_tokens = 16, .micro_batch_sequences = 1}});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 documents in a micro-batch of 1"));
  }
}

TEST(Validate, TheWrongBucketStrategyOrReplicasAreNamed) {
  EXPECT_THAT(error_of([](StepPlan& plan) { plan.phases[1].strategy = 1; }),
              HasSubstr("phase 1 runs strategy 1, its bucket 0"));
  EXPECT_THAT(error_of([](StepPlan& plan) { plan.phases[1].replica.pop_back(); }),
              HasSubstr("phase 1 has 1 replicas, its bucket 2"));
  EXPECT_THAT(error_of([](StepPlan& plan) {
                plan.phases[0].replica[0].push_back({.T = {8}, .shard = {{{0, 0, 6, 1}, {-1, 0, 2, 1}}}});
                pieces(plan) = {{1, 0, 3, 1}, {-1, 0, 1, 1}};
                micro_batch(plan).T = {4};
              }),
              HasSubstr("document 0 of 6 tokens belongs in bucket 1, not 0"));
  EXPECT_THAT(error_of([](StepPlan& plan) {
                plan.phases[1].replica = {{}, {}};
              }),
              HasSubstr("phase 1 has no documents"));
}

TEST(Validate, AWrongNumberOfLabelsIsNamed) {
  EXPECT_THAT(error_of([](StepPlan& plan) { plan.valid_tokens = 29; }),
              HasSubstr("valid_tokens is 29, the documents have 26 labels"));
  EXPECT_THAT(error_of([](StepPlan& plan) { plan.valid_tokens = 25; }), HasSubstr("valid_tokens is 25"));
}

TEST(Validate, WithAMaskThereMayBeFewerLabels) {
  StepPlan plan = good();
  for (const i64 labels : {0, 25, 26}) {
    plan.valid_tokens = labels;
    validate(plan, kLengths, kBuckets, /*masked=*/true);
  }
  for (const i64 labels : {-1, 27}) {
    plan.valid_tokens = labels;
    EXPECT_THROW(validate(plan, kLengths, kBuckets, /*masked=*/true), InternalError);
  }
}

TEST(Validate, PaddedDocumentsAreChecked) {
  const std::vector<i64> lengths{5, 4};
  const std::vector<BucketSpec> buckets{{.max_length = 16, .multiple = 2, .stream = true, .document_multiple = 4}};
  StepPlan plan{.valid_tokens = 7,
                .phases = {{.replica = {{{.T = {12}, .shard = {{{0, 0, 5, 1}, {-1, 0, 3, 1}, {1, 0, 4, 1}}}}}}}}};
  std::vector<Piece>& shard = plan.phases[0].replica[0][0].shard[0];
  const auto error = [&]() -> std::string {
    try {
      validate(plan, lengths, buckets);
    } catch (const InternalError& fault) {
      return fault.what();
    }
    return "valid";
  };
  EXPECT_EQ(error(), "valid");
  shard[1].count = 2;
  plan.phases[0].replica[0][0].T = {11};
  EXPECT_THAT(error(), HasSubstr("11 tokens are not a multiple of 2"));
  shard[1].count = 1;
  plan.phases[0].replica[0][0].T = {10};
  EXPECT_THAT(error(), HasSubstr("document 0 is not padded to 1 times a multiple of 4"));
  shard[1].count = 3;
  shard.push_back({-1, 0, 2, 1});
  plan.phases[0].replica[0][0].T = {14};
  EXPECT_THAT(error(), HasSubstr("9 tokens padded to 14, more than a multiple of 2"));
  shard = {{0, 0, 5, 1}, {-1, 0, 3, 1}, {-1, 0, 2, 1}, {1, 0, 4, 1}};
  EXPECT_THAT(error(), HasSubstr("document 1 is not padded to 1 times a multiple of 4"));
  shard = {{0, 0, 5, 1}, {-1, 0, 3, 1}, {1, 0, 4, 1}, {-1, 0, 1, 1}, {-1, 0, 1, 1}};
  EXPECT_THAT(error(), HasSubstr("padding that is not last"));
}

class ValidateRing : public testing::Test {
 protected:
  // Zigzag over ring ranks 0 and 1: 9 = 2 + 2 + 2 + 3 tokens, 4 = 1 + 1 + 1 + 1. Rank 2 has none.
  StepPlan plan_{
      .step = 0,
      .valid_tokens = 11,
      .phases = {{.strategy = 0,
                  .replica = {{{.T = {8, 6, 2},
                                .shard = {{{0, 0, 2, 1}, {0, 6, 3, 1}, {1, 0, 1, 1}, {1, 3, 1, 1}, {-1, 0, 1, 1}},
                                          {{0, 2, 4, 1}, {1, 1, 2, 1}},
                                          {{-1, 0, 2, 1}}}}}}}}};
  MicroBatch& micro_batch_ = plan_.phases[0].replica[0][0];
  BucketSpec bucket_{.max_length = 9, .micro_batch_tokens = 13, .multiple = 2, .rings = {{.ranks = 3}}};
  const std::vector<i64> lengths_{9, 4};

  std::string error() const {
    try {
      validate(plan_, lengths_, {&bucket_, 1});
    } catch (const InternalError& error) {
      return error.what();
    }
    return "valid";
  }
};

TEST_F(ValidateRing, RanksShareDocumentsAndMayHavePaddingOnly) {
  EXPECT_EQ(error(), "valid");
  EXPECT_DOUBLE_EQ(padding_share(plan_), 3.0 / 16);
  EXPECT_THAT(replica_work(plan_.phases[0], lengths_, {.linear = 1, .quadratic = 1}),
              ElementsAre(testing::DoubleEq(90 + 20)));
  EXPECT_EQ(padding_share({}), 0);
}

TEST_F(ValidateRing, ATokenOnTwoRanksIsNamed) {
  micro_batch_.shard[1][0].first = 1;
  EXPECT_THAT(error(), HasSubstr("token 1 of document 0 is placed twice"));
}

TEST_F(ValidateRing, EachRankIsPaddedToTheMultipleAndNoFurther) {
  bucket_.multiple = 4;
  EXPECT_THAT(error(), HasSubstr("6 tokens are not a multiple of 4"));
  bucket_.multiple = 2;
  micro_batch_.T[2] = 4;
  EXPECT_THAT(error(), HasSubstr("pieces of 2 tokens on ring rank 2 instead of 4"));
  micro_batch_.shard[2] = {{-1, 0, 4, 1}};
  EXPECT_THAT(error(), HasSubstr("0 tokens padded to 4, more than a multiple of 2"));
  micro_batch_.T[2] = 0;
  micro_batch_.shard[2] = {};
  EXPECT_THAT(error(), HasSubstr("0 tokens are not a multiple of 2"));
}

TEST_F(ValidateRing, CapacityIsThatOfAllRanks) {
  bucket_.micro_batch_tokens = 12;
  EXPECT_THAT(error(), HasSubstr("13 tokens in a micro-batch of 12"));
}

TEST_F(ValidateRing, ATokenCountForEachRankIsNeeded) {
  micro_batch_.T.pop_back();
  EXPECT_THAT(error(), HasSubstr("[8, 6] tokens, pieces of 3 ring ranks"));
}

TEST_F(ValidateRing, TheRingRanksAreThoseOfTheReplica) {
  bucket_.rings = {{.ranks = 4}};
  EXPECT_THAT(error(), HasSubstr("[8, 6, 2] tokens, pieces of 3 ring ranks"));
}

}  // namespace
}  // namespace switchyard::batch
