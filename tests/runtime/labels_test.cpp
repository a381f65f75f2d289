// Labels that don't count, and the loss of each source, under any strategies.
#include <gmock/gmock.h>

#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::Each;
using testing::IsEmpty;

struct Masked {
  std::vector<Documents> batches;
  std::vector<Labels> labels;
};

// Two batches; of each document a random part counts, of some all, of some nothing. Three sources, one of them without
// documents.
Masked masked_batches() {
  Masked made{{tiny_documents(13, 1), tiny_documents(11, 2)}, {}};
  std::mt19937 random(4);
  for (const Documents& documents : made.batches) {
    Labels labels{.sources = 3};
    for (const auto& document : documents) {
      labels.source.push_back(random() % 2 == 0 ? 0 : 2);
      labels.counts.emplace_back(document.size());
      const auto kind = random() % 4;
      if (kind == 0) labels.counts.back().clear();
      for (auto& count : labels.counts.back()) count = kind == 1 ? 0 : random() % 2;
    }
    made.labels.push_back(labels);
  }
  return made;
}

void expect_equal(const TinyRun& run, const TinyRun& expected) {
  ASSERT_THAT(run.ends, Each(IsEmpty()));
  for (size_t s = 0; s < expected.steps.size(); ++s) {
    const StepResult &a = run.steps[s], &b = expected.steps[s];
    EXPECT_NEAR(a.loss, b.loss, 1e-12 * b.loss);
    EXPECT_NEAR(a.norm, b.norm, 1e-10 * b.norm);
    ASSERT_EQ(a.source_loss.size(), b.source_loss.size());
    for (size_t source = 0; source < b.source_loss.size(); ++source)
      EXPECT_NEAR(a.source_loss[source], b.source_loss[source], 1e-12 * b.loss);
  }
  for (size_t p = 0; p < expected.master.size(); ++p) EXPECT_LT(gap(run.master[p], expected.master[p]), 1e-10);
}

TEST(Labels, MasksAndSourcesGiveTheSameUnderEveryStrategy) {
  const Masked masked = masked_batches();
  const TinyRun expected = run_tiny(tiny_plans({"1,1,1"}, 1), masked.batches, {.labels = masked.labels});
  for (const std::vector<std::string>& specs :
       std::vector<std::vector<std::string>>{{"4,1,1"},
                                             {"1,4,1"},
                                             {"1,2,2"},
                                             {"ulysses=4"},
                                             {"dp=2,ulysses=2"},
                                             {"1,2,2", "4,1,1"},
                                             {"tp=2,pp=2,schedule=zero-bubble", "ulysses=2,tp=2"}}) {
    SCOPED_TRACE(specs.front());
    const std::vector<i64> bounds = specs.size() == 1 ? std::vector<i64>{kLongest} : std::vector<i64>{kLongest, 12};
    expect_equal(run_tiny(tiny_plans(specs, 4), masked.batches, {.bounds = bounds, .labels = masked.labels}), expected);
  }
}

TEST(Labels, TheLossesOfTheSourcesAddUp) {
  const Masked masked = masked_batches();
  for (const StepResult& step : run_tiny(tiny_plans({"2,1,1"}, 2), masked.batches, {.labels = masked.labels}).steps) {
    ASSERT_EQ(step.source_loss.size(), 3u);
    EXPECT_GT(step.source_loss[0], 0);
    EXPECT_EQ(step.source_loss[1], 0);
    EXPECT_NEAR(step.source_loss[0] + step.source_loss[2], step.loss, 1e-13);
  }
  EXPECT_THAT(run_tiny(tiny_plans({"1,1,1"}, 1), masked.batches).steps[0].source_loss, IsEmpty());
}

// Attention is causal: what follows the last label that counts has no influence.
TEST(Labels, CountingTheFirstOnesIsTrainingOnShorterDocuments) {
  const Documents whole = tiny_documents(9, 5);
  Documents cut = whole;
  Labels labels;
  for (auto& document : cut) {
    labels.counts.emplace_back(document.size(), 1);
    document.resize((document.size() + 1) / 2);
    std::fill(labels.counts.back().begin() + static_cast<std::ptrdiff_t>(document.size()), labels.counts.back().end(),
              std::uint8_t{0});
  }
  expect_equal(run_tiny(tiny_plans({"2,2,1"}, 4), {whole, whole}, {.labels = {labels, labels}}),
               run_tiny(tiny_plans({"1,1,1"}, 1), {cut, cut}));
}

// Each label's loss is the same whatever other labels count.
TEST(Labels, OneHalfAndTheOtherHalfAddUpToAll) {
  const std::vector<Documents> batches = {tiny_documents(9, 6)};
  Labels even, odd;
  for (const auto& document : batches[0]) {
    even.counts.emplace_back();
    odd.counts.emplace_back();
    for (size_t i = 0; i < document.size(); ++i) {
      even.counts.back().push_back(i % 2 == 0);
      odd.counts.back().push_back(i % 2 == 1);
    }
  }
  const auto sum = [&](const Labels& labels) {
    const TinyRun run = run_tiny(tiny_plans({"1,1,1"}, 1), batches, {.labels = {labels}});
    return run.steps[0].loss * static_cast<double>(labels_that_count(batches[0], labels));
  };
  EXPECT_NEAR(sum(even) + sum(odd), sum({}), 1e-10);
}

TEST(Labels, ABatchWithoutLabelsHasNoLossAndNoGradient) {
  const std::vector<Documents> batches = {tiny_documents(5, 6)};
  Labels none;
  for (const auto& document : batches[0]) none.counts.emplace_back(document.size());
  const TinyRun run = run_tiny(tiny_plans({"1,2,1"}, 2), batches, {.labels = {none}});
  ASSERT_THAT(run.ends, Each(IsEmpty()));
  EXPECT_EQ(run.steps[0].loss, 0);
  EXPECT_EQ(run.steps[0].norm, 0);
  EXPECT_TRUE(run.steps[0].finite);
}

}  // namespace
}  // namespace switchyard::runtime
