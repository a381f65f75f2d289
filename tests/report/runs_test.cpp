#include "report/runs.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "../cases.hpp"
#include "report/html.hpp"
#include "simulator/trace.hpp"
#include "steps.hpp"

namespace switchyard::report {
namespace {

const std::vector<i64> kLengths{60, 50, 40, 30, 20, 10, 31, 7};

std::string tile(const Run& run, const std::string& name) {
  for (const auto& [key, value] : run.tiles)
    if (key == name) return value;
  return "";
}

RunLog log_of_two_steps() {
  return read_log(
      "{\"step\":1,\"loss\":3.0,\"tokens_per_second\":10,\"seconds\":2,\"slowest_rank\":3,\"peak_bytes_per_rank\":[5,6,"
      "7,8]}\n"
      "{\"step\":2,\"loss\":2.0,\"tokens_per_second\":20,\"seconds\":1,\"slowest_rank\":3,\"peak_bytes_per_rank\":[5,6,"
      "7,9]}\n",
      "log");
}

TEST(Run, that_is_simulated_has_all_sections_with_the_simulations_numbers) {
  SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, kLengths);
  step.hardware.device.memory = Bytes{1 << 30};
  const report::Run run = simulated_run("job", step.view());
  const nlohmann::ordered_json json = to_json(Page{"t", {run}}), &r = json["runs"][0];
  EXPECT_TRUE(r["simulated"]);
  EXPECT_TRUE(r["steps"].is_null());
  for (const char* part : {"timelines", "buckets", "links", "matrices", "shares", "tiles", "facts"})
    EXPECT_FALSE(r[part].empty()) << part;
  const auto& timeline = r["timelines"][0];
  EXPECT_EQ(timeline["predicted_seconds"].get<double>(), step.simulation.step_seconds);
  EXPECT_EQ(timeline["step"], 1);
  ASSERT_EQ(timeline["phases"].size(), 2u);
  EXPECT_EQ(timeline["phases"][0].dump(),
            R"({"strategy":"1,2,2","layers":[["0","1"]],"group":[0],"micro_batches":[[[1,60],[1,50],[1,40]]]})");
  EXPECT_EQ(timeline["phases"][1].dump(), R"({"strategy":"4,1,1","layers":[["0-1"]],"group":[0,0,0,0],)"
                                          R"("micro_batches":[[[1,31]],[[1,30]],[[1,20]],[[2,17]]]})");
  const auto ends = timeline["spans"]["end"].get<std::vector<double>>();
  EXPECT_NEAR(*std::max_element(ends.begin(), ends.end()), step.simulation.step_seconds, 1e-9);
  EXPECT_EQ(r["memory"]["budget"], 1 << 30);
  EXPECT_EQ(tile(run, "predicted step"), format_duration(Seconds{step.simulation.step_seconds}));
}

TEST(Run, that_was_measured_stands_beside_its_prediction) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, kLengths);
  const PlannedView view = step.view();
  const report::Run run =
      measured_run("run", step.job, log_of_two_steps(),
                   measured_timeline(simulator::trace_of(step.program, step.simulation), "t"), &view);
  EXPECT_EQ(tile(run, "loss, first to last step"), "3.0000 \u2192 2.0000");
  ASSERT_EQ(run.timelines.size(), 1u);
  EXPECT_TRUE(run.timelines[0].predicted_seconds && run.timelines[0].measured_seconds);
  EXPECT_EQ(run.memory->measured_peak, (std::vector<i64>{5, 6, 7, 9}));
  EXPECT_EQ(run.memory->predicted_peak.size(), 4u);
  for (const BucketRow& id : run.buckets)
    EXPECT_NEAR(*id.measured_seconds, *id.predicted_seconds, 0.125e-6) << "a trace has eighths of microseconds";
}

TEST(Run, without_a_cluster_takes_task_times_from_what_was_measured) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, kLengths);
  PlannedView view = step.view();
  view.simulation = nullptr;
  view.hardware = nullptr;
  const report::Run run =
      measured_run("run", step.job, log_of_two_steps(),
                   measured_timeline(simulator::trace_of(step.program, step.simulation), "t"), &view);
  EXPECT_FALSE(run.timelines[0].predicted_seconds.has_value());
  EXPECT_FALSE(run.memory->curves.empty());
  EXPECT_GT(run.memory->curves[0].seconds.back(), 0.5 * step.simulation.step_seconds);
  EXPECT_TRUE(run.shares.empty());
}

TEST(Run, of_which_only_the_log_is_left_still_has_its_figures) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, kLengths);
  const report::Run run = measured_run("run", step.job, log_of_two_steps(), std::nullopt, nullptr);
  EXPECT_TRUE(run.timelines.empty() && run.buckets.empty() && run.matrices.empty());
  EXPECT_EQ(run.steps->step.size(), 2u);
  EXPECT_EQ(tile(run, "step, median"), "1.5 s");
  EXPECT_EQ(tile(run, "throughput, median"), "15 tokens/s");
  EXPECT_EQ(tile(run, "slowest rank, most often"), "3 (2 of 2 steps)");
  PlannedView view = step.view();
  view.simulation = nullptr;
  view.hardware = nullptr;
  const report::Run planned = measured_run("run", step.job, log_of_two_steps(), std::nullopt, &view);
  EXPECT_FALSE(planned.buckets.empty());
  EXPECT_TRUE(planned.memory->curves.empty());
}

TEST(Run, of_a_thousand_ranks_is_a_page_of_bounded_size) {
  constexpr int kRanks = cases(1024, 64);
  std::vector<i64> lengths;
  for (i64 i = 0; i < 2 * kRanks; ++i) lengths.push_back(5 + i % 60);
  const SimulatedStep step({std::to_string(kRanks / 4) + ",2,2", std::to_string(kRanks) + ",1,1"}, kRanks / 8, 8,
                           lengths);
  const report::Run run = simulated_run("big", step.view());
  EXPECT_LE(run.timelines[0].tracks.size(), kMostTracks);
  size_t spans = 0, ranks = 0;
  for (const Track& track : run.timelines[0].tracks) {
    spans += track.spans.size();
    ranks += track.ranks.size();
  }
  EXPECT_EQ(ranks, static_cast<size_t>(kRanks));
  EXPECT_LE(spans, kMostSpans);
  EXPECT_LT(to_json(Page{"t", {run}}).dump().size(), 4u << 20);
}

}  // namespace
}  // namespace switchyard::report
