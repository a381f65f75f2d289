#include "batch/document_places.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

using testing::ElementsAre;

TEST(DocumentPlaces, of_whole_documents_have_no_keys_and_no_time_shares) {
  const std::vector<BucketSpec> buckets{{.max_length = 16, .strategy = 1, .replicas = 2}};
  const StepPlan plan{
      .phases = {{.strategy = 1,
                  .replica = {{{.T = {6}, .shard = {{{0, 0, 6, 1}}}}, {.T = {3}, .shard = {{{1, 0, 3, 1}}}}},
                              {{.T = {4}, .shard = {{{2, 0, 3, 1}, {-1, 0, 1, 1}}}}}}}}};
  const std::vector<PhasePlaces> phases = document_places(plan, std::vector<i64>{6, 3, 3}, buckets, {});
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_EQ(phases[0].strategy, 1);
  EXPECT_EQ(phases[0].max_length, 16);
  EXPECT_EQ(phases[0].documents, 3);
  EXPECT_FALSE(phases[0].ring);
  EXPECT_DOUBLE_EQ(phases[0].slowest, 1.5);
  EXPECT_DOUBLE_EQ(phases[0].bound, 1);
  ASSERT_EQ(phases[0].replicas.size(), 2U);
  const ReplicaPlaces& first = phases[0].replicas[0];
  EXPECT_EQ(first.documents, 2);
  EXPECT_EQ(first.tokens, 9);
  EXPECT_EQ(first.pairs, 27);
  EXPECT_DOUBLE_EQ(first.share, 1.5);
  ASSERT_EQ(first.micro_batches.size(), 2U);
  const RingPlace& padded = phases[0].replicas[1].micro_batches[0][0];
  EXPECT_EQ(padded.tokens, 4);
  EXPECT_EQ(padded.padding, 1);
  EXPECT_EQ(padded.pieces, plan.phases[0].replica[1][0].shard[0]);
  EXPECT_EQ(padded.keys, ReceivedKeys{});
  EXPECT_EQ(padded.share, 0);
}

TEST(DocumentPlaces, of_a_ring_have_the_keys_that_come_and_their_bytes) {
  const std::vector<BucketSpec> buckets{
      {.max_length = 36,
       .rings = {{.ranks = 2, .ranks_per_host = 2, .costs = {.per_token = 1, .per_ring_step = 3}, .key_bytes = 100}}}};
  const MicroBatch shared{{20, 16}, {{{0, 0, 8, 1}, {0, 24, 8, 1}, {1, 0, 4, 1}}, {{0, 8, 16, 1}}}};
  const std::vector<PhasePlaces> phases =
      document_places({.phases = {{.replica = {{shared}}}}}, std::vector<i64>{32, 4}, buckets, {});
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_TRUE(phases[0].ring);
  EXPECT_EQ(phases[0].documents, 2);
  const std::vector<RingPlace>& ranks = phases[0].replicas[0].micro_batches[0];
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].keys, (ReceivedKeys{16, 0}));
  EXPECT_EQ(ranks[1].keys, (ReceivedKeys{8, 0}));
  EXPECT_EQ(ranks[0].key_bytes, 1600);
  EXPECT_EQ(ranks[0].pairs, 274);
  EXPECT_EQ(ranks[1].pairs, 264);
  EXPECT_DOUBLE_EQ(ranks[0].share, 23.0 / 18);  // 36 tokens on two ranks are 18 each; a ring step takes 3
  EXPECT_DOUBLE_EQ(phases[0].slowest, 23.0 / 18);
  EXPECT_DOUBLE_EQ(phases[0].bound, 19.0 / 18);  // the document of 32 on both ranks
}

TEST(DocumentPlaces, need_a_bucket_for_each_phase) {
  EXPECT_THROW(document_places({.phases = {{.strategy = 1, .replica = {{}}}}}, {}, {}, {}), InternalError);
}

}  // namespace
}  // namespace switchyard::batch
