#include "report/headline.hpp"

#include <gtest/gtest.h>

namespace switchyard::report {
namespace {

using Sentences = std::vector<std::string>;

report::Run run_with(StepParts parts) {
  report::Run run;
  run.timelines.push_back({.step = 2, .predicted_seconds = 2.0});
  run.parts.push_back(parts);
  return run;
}

TEST(Headline, says_what_limits_the_step_and_what_would_help_most) {
  EXPECT_EQ(headline_of(run_with({.compute = 0.6, .collectives = 0.1, .pipeline = 0.3})),
            (Sentences{"Step 2, predicted to take 2 s, is limited by computing: 60 % of the ranks' time, then waiting "
                       "for other stages (30 %).",
                       "What would help most is a fuller pipeline: more micro-batches, fewer stages, or an interleaved "
                       "or zero-bubble schedule. At stake: 30 % of the ranks' time."}));
}

TEST(Headline, speaks_of_the_measured_step_where_there_is_one) {
  report::Run run = run_with({.compute = 1});
  run.timelines[0].measured_seconds = 5.0;
  run.parts.push_back({.measured = true, .compute = 0.4, .imbalance = 0.6});
  const Sentences sentences = headline_of(run);
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_EQ(sentences[0],
            "Step 2, measured at 5 s, is limited by waiting for other ranks: 60 % of the ranks' time, then computing "
            "(40 %).");
  EXPECT_EQ(sentences[1], "The prediction was 2 s: measured, the step is 2.5 times as long.");
  run.timelines[0].measured_seconds = 1.5;
  EXPECT_EQ(headline_of(run)[1], "The prediction was 2 s: measured, the step is 25 % shorter than predicted.");
}

TEST(Headline, says_that_times_were_emulated) {
  report::Run run = run_with({.compute = 1});
  run.emulated = "2x4:1GB/s,1GB/s,1GiB";
  run.timelines[0].measured_seconds = 2.5;
  run.parts.push_back({.measured = true, .compute = 1});
  const Sentences sentences = headline_of(run);
  EXPECT_EQ(sentences[0].substr(0, 24), "Step 2, emulated at 2.5 ");
  EXPECT_EQ(sentences[1], "The prediction was 2 s: emulated, the step is 25 % longer than predicted.");
  EXPECT_EQ(sentences.back(),
            "Steps were emulated: times are those on 2x4:1GB/s,1GB/s,1GiB, with cores of one machine as devices.");
}

TEST(Headline, compares_with_the_quickest_single_strategy_that_fits) {
  report::Run run;
  const auto gain = [&](std::vector<Candidate> candidates) {
    run.candidates = std::move(candidates);
    const Sentences sentences = headline_of(run);
    return sentences.empty() ? "" : sentences[0];
  };
  const Candidate own{.name = "own", .seconds = 8.0, .chosen = true};
  EXPECT_EQ(gain({own,
                  {.name = "a", .seconds = 12.0, .single = true},
                  {.name = "b", .seconds = 10.0, .single = true},
                  {.name = "c", .seconds = 9.0, .fits = false, .single = true},
                  {.name = "two", .seconds = 8.5}}),
            "It takes 20 % less time than the best single strategy, b (10 s).");
  EXPECT_EQ(gain({own, {.name = "b", .seconds = 6.4, .single = true}}),
            "It takes 25 % more time than the best single strategy, b (6.4 s).");
  EXPECT_EQ(gain({own, {.name = "b", .seconds = 2.5, .single = true}}),
            "It takes 3.2 times as long as the best single strategy, b (2.5 s).");
  EXPECT_EQ(gain({own, {.name = "b", .seconds = 9.0, .fits = false, .single = true}}),
            "No single strategy that was compared fits the memory.");
  EXPECT_EQ(gain({own, {.name = "two", .seconds = 9.0}}), "");
}

TEST(Headline, blames_padding_where_it_costs_most) {
  report::Run run = run_with({.compute = 0.9, .sends = 0.1});
  run.buckets.push_back({.tokens = 60, .computed = 100});
  EXPECT_EQ(headline_of(run).back(), "What would help most is less padding: it takes 36 % of the ranks' time.");
  EXPECT_EQ(
      headline_of(run_with({.compute = 1})).back(),
      "Ranks hardly wait: what would help most is less computing, such as less recomputation, or quicker devices.");
}

}  // namespace
}  // namespace switchyard::report
