#include "train/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace switchyard::train {
namespace {

StepRecord example() {
  return {.step = 12,
          .loss = 4.5,
          .learning_rate = 3e-4,
          .grad_norm = 1.25,
          .tokens = 16384,
          .time = {4},
          .matmul_share = 0.5,
          .peak_memory = {Bytes{100}, Bytes{300}, Bytes{200}},
          .predicted_peak_memory = {Bytes{110}, Bytes{290}, Bytes{200}},
          .peak_memory_bound = {Bytes{120}, Bytes{310}, Bytes{200}},
          .intra_host_traffic = Bytes{5000000000},
          .inter_host_traffic = Bytes{7},
          .switch_time = {1},
          .padding_share = 0.125,
          .bubble_share = 0.25,
          .slowest_rank = 2,
          .slowest_rank_time = {3.5},
          .median_rank_time = {3.25},
          .hidden_share = 0.75};
}

TEST(Metrics, ALogLineHasEveryFieldUnderItsName) {
  EXPECT_EQ(
      to_json(example()).dump(),
      R"({"step":12,"loss":4.5,"lr":0.0003,"grad_norm":1.25,"tokens":16384,"seconds":4.0,"tokens_per_second":4096.0,)"
      R"("matmul_share":0.5,"intra_bytes":5000000000,"inter_bytes":7,"switch_seconds":1.0,"switch_share":0.25,)"
      R"("padding_share":0.125,"bubble_share":0.25,"slowest_rank":2,"slowest_rank_seconds":3.5,)"
      R"("median_rank_seconds":3.25,"hidden_share":0.75,"peak_bytes_per_rank":[100,300,200],)"
      R"("predicted_peak_bytes_per_rank":[110,290,200],"peak_bound_bytes_per_rank":[120,310,200],"skipped":false})");
}

TEST(Metrics, WhatWasNotMeasuredIsLeftOut) {
  StepRecord record = example();
  record.matmul_share.reset();
  record.bubble_share.reset();
  record.hidden_share.reset();
  record.loss.reset();
  const nlohmann::ordered_json json = to_json(record);
  EXPECT_FALSE(json.contains("matmul_share"));
  EXPECT_FALSE(json.contains("bubble_share"));
  EXPECT_FALSE(json.contains("hidden_share"));
  EXPECT_FALSE(json.contains("loss")) << "no label counted";
  EXPECT_EQ(scalars(record).size(), scalars(example()).size() - 4);
}

TEST(Metrics, EmulatedTimesAreMarkedInTheLogAndAsAScalar) {
  StepRecord record;
  EXPECT_FALSE(to_json(record).contains("emulated"));
  record.emulated = "2x4";
  EXPECT_EQ(to_json(record).at("emulated"), "2x4");
  EXPECT_THAT(scalars(record), testing::Contains(std::pair(std::string("train/emulated"), 1.0)));
  EXPECT_EQ(scalars(record).size(), scalars(StepRecord{}).size() + 1);
}

TEST(Metrics, SourcesHaveTheirLossAndTokensByName) {
  StepRecord record = example();
  record.sources = {{.name = "code", .tokens = 100, .loss = 2.5}, {.name = "the web", .tokens = 5}};
  const nlohmann::ordered_json json = to_json(record);
  EXPECT_EQ(json.at("loss/code"), 2.5);
  EXPECT_EQ(json.at("tokens/code"), 100);
  EXPECT_EQ(json.at("tokens/the web"), 5);
  EXPECT_FALSE(json.contains("loss/the web")) << "it has no labels";
  EXPECT_EQ(scalars(record).size(), scalars(example()).size() + 3);
}

TEST(Metrics, AStepWithoutDurationHasNoRate) {
  const StepRecord record{.tokens = 10, .switch_time = {1}};
  EXPECT_EQ(record.tokens_per_second(), 0);
  EXPECT_EQ(record.switch_share(), 0);
}

TEST(Metrics, TheRankThatWaitsLeastIsTheSlowest) {
  StepRecord record{.time = {4}};
  set_waiting(record, {3, 1, 2, 5});  // a stream may count a little that belongs to the step before
  EXPECT_DOUBLE_EQ(*record.bubble_share, 11.0 / 16);
  EXPECT_EQ(record.slowest_rank, 1);
  EXPECT_EQ(record.slowest_rank_time.count, 3);
  EXPECT_EQ(record.median_rank_time.count, 1.5);
  set_waiting(record, {5, 6});
  EXPECT_EQ(record.slowest_rank_time.count, 0);
  StepRecord single{.time = {4}};
  set_waiting(single, {1});
  EXPECT_EQ(*single.bubble_share, 0.25);
  EXPECT_FALSE(single.slowest_rank);
}

TEST(Metrics, ScalarsAreTheNumbersOfTheLogLine) {
  StepRecord record = example();
  record.skipped = true;
  const nlohmann::ordered_json json = to_json(record);
  std::map<std::string, double> by_tag;
  for (const auto& [tag, value] : scalars(record)) by_tag[tag] = value;
  EXPECT_EQ(by_tag.at("train/peak_bytes"), 300);
  EXPECT_EQ(by_tag.at("train/predicted_peak_bytes"), 290);
  EXPECT_EQ(by_tag.at("train/peak_bound_bytes"), 310);
  EXPECT_EQ(by_tag.at("train/skipped"), 1);
  for (const auto& [name, value] : json.items()) {
    if (value.is_number() && name != "step") {
      EXPECT_EQ(by_tag.at("train/" + name), value.get<double>()) << name;
    }
  }
  EXPECT_EQ(by_tag.size(), json.size() - 1);  // all but "step"
}

}  // namespace
}  // namespace switchyard::train
