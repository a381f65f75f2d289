#include "batch/wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "batch/planner.hpp"

namespace switchyard::batch {
namespace {

using testing::HasSubstr;

StepPlan example() {
  std::vector<i64> lengths;
  for (i64 i = 0; i < 200; ++i) lengths.push_back(1 + i * i % 997);
  const std::vector<BucketSpec> buckets{{.max_length = 1000, .strategy = 3, .replicas = 2, .multiple = 8},
                                        {.max_length = 100, .strategy = 1, .replicas = 5}};
  return plan_batch(123456789, lengths, buckets, {});
}

TEST(Wire, APlanSurvivesThereAndBack) {
  const StepPlan plan = example();
  ASSERT_GT(plan.phases.size(), 1u);
  EXPECT_EQ(decode(encode(plan)), plan);
  EXPECT_EQ(decode(encode({})), StepPlan{});
  EXPECT_LT(encode(plan).size(), 200u * 10);
}

TEST(Wire, ExtremeNumbersAndRingShardsSurvive) {
  const StepPlan plan{
      .step = std::numeric_limits<i64>::max(),
      .valid_tokens = std::numeric_limits<i64>::min(),
      .phases = {
          {.strategy = -1, .replica = {{}, {{.T = {2, 2, 0}, .shard = {{{7, 1, 2, 2}}, {{-1, 0, 2, 1}}, {}}}}}}}};
  EXPECT_EQ(decode(encode(plan)), plan);
}

TEST(Wire, ARingRankWithoutItsNumberOfTokensIsABug) {
  const StepPlan plan{.phases = {{.replica = {{{.T = {2}, .shard = {{{0, 0, 2, 1}}, {}}}}}}}};
  EXPECT_THROW(encode(plan), InternalError);
}

TEST(Wire, EveryCutIsNoticed) {
  const std::vector<std::byte> bytes = encode(example());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(decode(std::span(bytes).first(size)), ClusterError) << size;
  EXPECT_THAT(message_of<ClusterError>([&] { decode(std::span(bytes).first(bytes.size() - 1)); }),
              HasSubstr("is cut short (at byte"));
}

TEST(Wire, BytesAfterTheEndAreNoticed) {
  std::vector<std::byte> bytes = encode(example());
  bytes.push_back(std::byte{0});
  EXPECT_THAT(message_of<ClusterError>([&] { decode(bytes); }), HasSubstr("goes on after its end"));
}

TEST(Wire, AnotherVersionIsRefused) {
  std::vector<std::byte> bytes = encode(example());
  bytes[0] = std::byte{1};
  EXPECT_THAT(message_of<ClusterError>([&] { decode(bytes); }),
              HasSubstr("unknown version. Start every rank with the same program."));
}

TEST(Wire, DamagedBytesThrowAndNeverCrash) {
  const std::vector<std::byte> bytes = encode(example());
  std::size_t refused = 0;
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{0xff};
    try {
      decode(damaged);
    } catch (const ClusterError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0u);
  std::vector<std::byte> endless(12, std::byte{0xff});
  endless[0] = bytes[0];
  EXPECT_THAT(message_of<ClusterError>([&] { decode(endless); }), HasSubstr("more than 64 bits"));
}

}  // namespace
}  // namespace switchyard::batch
