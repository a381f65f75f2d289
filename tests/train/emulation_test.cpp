#include "train/emulation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../files/scratch.hpp"
#include "../message_of.hpp"
#include "config/emulated_cluster.hpp"
#include "small_run.hpp"
#include "train/train_job.hpp"

namespace switchyard::train {
namespace {

using testing::HasSubstr;

// Devices that are never asked for a rate: what they compute is measured.
cluster::Hardware emulated(const std::string& spec) {
  cluster::Device core{.name = "core"};
  for (const DType type : {DType::f32, DType::f64}) core.rates[type] = {.matmul = {1e9}, .memory = {1e18}};
  return config::with_cores(config::emulated_hardware(spec), core);
}

class EmulationTest : public testing::Test {
 protected:
  EmulationTest() { write_small_corpus(scratch_ / "data"); }
  config::Job job(const std::vector<std::string>& sets = {}) const {
    std::vector<std::string> all = {"run.checkpoint_every=0", "run.save_last=false"};
    all.insert(all.end(), sets.begin(), sets.end());
    return small_job((scratch_ / "data").string(), (scratch_ / "out").string(), all);
  }
  // The log of a run on the emulated cluster; empty: of one that is not emulated.
  std::vector<nlohmann::json> log(const std::string& spec, const std::vector<std::string>& sets = {}) {
    std::vector<std::string> all = sets;
    TrainSettings settings{.job = {}, .force = true};
    if (!spec.empty()) {
      all.push_back("run.emulate=\"" + spec + "\"");
      settings.emulated = emulated(spec);
    }
    settings.job = job(all);
    train(settings, {});
    std::istringstream text(files::get(scratch_ / "out/log.jsonl"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  Scratch scratch_;
};

TEST_F(EmulationTest, changes_no_loss_by_a_bit_and_says_whose_times_are_logged) {
  const auto plain = log(""), slow = log("2x1:1Mbit/s,1Mbit/s,1GiB");
  ASSERT_EQ(slow.size(), plain.size());
  for (size_t s = 0; s < plain.size(); ++s) {
    EXPECT_EQ(slow[s].at("loss"), plain[s].at("loss"));
    EXPECT_EQ(slow[s].at("grad_norm"), plain[s].at("grad_norm"));
    EXPECT_EQ(slow[s].at("emulated"), "2x1:1Mbit/s,1Mbit/s,1GiB");
    EXPECT_FALSE(plain[s].contains("emulated"));
    EXPECT_GT(slow[s].at("inter_bytes"), 0) << "the ranks are on two hosts";
    EXPECT_EQ(plain[s].at("inter_bytes"), 0);
  }
}

// With links so slow, a step lasts as long as its messages at least: those of the two ranks travel at once.
TEST_F(EmulationTest, takes_as_long_as_the_links_of_the_cluster_need) {
  for (const auto& line : log("2x1:100kbit/s,1Gbit/s,1GiB")) {
    const double bytes = line.at("inter_bytes").get<double>();
    EXPECT_GT(line.at("seconds").get<double>(), bytes / 2 / (100e3 / 8));
    EXPECT_LT(line.at("seconds").get<double>(), 1.5 * bytes / (100e3 / 8));
    EXPECT_GT(line.at("bubble_share").get<double>() + line.at("hidden_share").get<double>(), 0);
  }
}

TEST_F(EmulationTest, writes_the_timeline_of_the_cluster) {
  const auto lines = log("2x1:100kbit/s,1Gbit/s,1GiB", {"run.trace_step=2", "run.steps=2"});
  const auto timeline = nlohmann::json::parse(files::get(scratch_ / "out/timeline.json"));
  double end = 0;
  for (const auto& event : timeline.at("traceEvents"))
    if (event.at("ph") == "X") end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
  EXPECT_LE(end / 1e6, lines[1].at("seconds").get<double>() + 1e-6);
  EXPECT_GT(end / 1e6, 0.5 * lines[1].at("seconds").get<double>());
  EXPECT_EQ(timeline.at("otherData").at("hosts"), nlohmann::json({0, 1}));
  EXPECT_EQ(timeline.at("otherData").at("emulated"), "2x1:100kbit/s,1Gbit/s,1GiB");
}

// Seconds between the tasks of a rank's compute stream, and within them.
double waiting_of(const nlohmann::json& timeline, int rank) {
  std::vector<std::pair<double, double>> spans;
  for (const auto& event : timeline.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("pid") != rank) continue;
    const auto name = event.at("name").get<std::string>();
    if (name.starts_with("run ") || name.starts_with("zero-fill ") || name.starts_with("update "))
      spans.emplace_back(event.at("ts").get<double>(), event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  std::ranges::sort(spans);
  double waiting = 0, free = 0;
  for (const auto& [begin, end] : spans) {
    waiting += std::max(0.0, begin - free) / 1e6;
    free = std::max(free, end);
  }
  return waiting;
}

// A stream that has nothing to compute waits, whatever is transferred meanwhile, as in a run that isn't emulated.
TEST_F(EmulationTest, counts_the_waiting_of_compute_streams_as_its_timeline_shows_it) {
  const auto line =
      log("2x1:100kbit/s,1Gbit/s,1GiB", {"bucket.0.strategy=2,1,1", "run.trace_step=2", "run.steps=2"})[1];
  const auto timeline = nlohmann::json::parse(files::get(scratch_ / "out/timeline.json"));
  const double first = waiting_of(timeline, 0), second = waiting_of(timeline, 1),
               seconds = line.at("seconds").get<double>(), most = 0.01 * seconds;
  EXPECT_GT(line.at("bubble_share"), 0.5) << "the links are slow";
  EXPECT_NEAR(line.at("bubble_share").get<double>() * 2 * seconds, first + second, most);
  EXPECT_NEAR(line.at("slowest_rank_seconds").get<double>(), seconds - std::min(first, second), most);
  EXPECT_NEAR(line.at("median_rank_seconds").get<double>(), seconds - (first + second) / 2, most);
  EXPECT_NEAR(waiting_of(timeline, line.at("slowest_rank")), std::min(first, second), most);
}

TEST(EmulatedTimes, have_hidden_communication_of_several_ranks_only) {
  simulator::Simulation step;
  step.step_seconds = 1;
  for (const bool several : {false, true}) {
    step.ranks.push_back({.compute = 1, .communication = 0.5, .overlap = 0.25, .idle = 0});
    StepRecord record;
    set_times(record, step, {}, {{}, std::vector<std::vector<int>>(step.ranks.size())});
    EXPECT_EQ(record.hidden_share, several ? std::optional(0.5) : std::nullopt);
  }
}

TEST_F(EmulationTest, is_refused_where_ranks_are_no_cores_of_this_process) {
  const cluster::Hardware four = emulated("2x2:1GB/s,1GB/s,1GiB"), two = emulated("1x2:1GB/s,1GiB");
  const auto refusal = [&](const std::vector<std::string>& sets, const cluster::Hardware& hardware,
                           const comm::Launch& launch = {}) {
    return message_of([&] { require_emulation(job(sets), hardware, launch); });
  };
  EXPECT_EQ(refusal({}, two), "no error");
  EXPECT_THAT(refusal({}, four),
              HasSubstr("run.ranks = 2, but the emulated cluster 2x2:1GB/s,1GB/s,1GiB has 4 devices"));
  EXPECT_THAT(refusal({"run.threads=2"}, two), HasSubstr("each emulated device is one core"));
  EXPECT_THAT(refusal({"run.device=\"cuda\""}, two), HasSubstr("run.device = \"cuda\""));
  comm::Launch launch;
  launch.distributed = true;
  launch.size = 2;
  EXPECT_THAT(refusal({}, two, launch), HasSubstr("but 2 were launched"));
}

}  // namespace
}  // namespace switchyard::train
