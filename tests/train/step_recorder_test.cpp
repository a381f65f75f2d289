#include "train/step_recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "../comm/rank_threads.hpp"
#include "../files/scratch.hpp"
#include "../runtime/tiny_job.hpp"
#include "base/clock.hpp"
#include "comm/collectives.hpp"
#include "small_run.hpp"
#include "train/channels.hpp"
#include "train/update_settings.hpp"

namespace switchyard::train {
namespace {

using testing::HasSubstr;

constexpr double kAside = 0.5;  // seconds

// Two steps of two ranks, recorded; "whole_seconds" of the first one are all that it took, on the slowest rank.
// change: what becomes of a rank's result first.
std::vector<nlohmann::json> record(const config::Job& job,
                                   const std::function<void(runtime::StepResult&, int rank)>& change = {}) {
  const runtime::Documents documents = runtime::tiny_documents(4, 5);
  std::array<double, 2> whole{};
  const auto ends = comm::run_ranks(2, {.strict = true}, [&](comm::Fabric& fabric) {
    kernels::RankMemory memory(i64{1} << 30);
    const kernels::MemoryScope scope(&memory);
    comm::JointWork files(fabric, comm::everyone(fabric, kFileChannel), std::chrono::milliseconds(100));
    const compiler::Plans plans = runtime::tiny_plans({"1,2,1"}, 2);
    const RankSettings settings{.memory = &memory};
    Rank rank(plans, runtime::tiny_llama(), fabric, settings);
    rank.store().home.initialize(runtime::tiny_values(plans.graph()));
    const std::vector<data::Source> sources;  // one source: nothing is reported by itself
    StepRecorder recorder(job, sources, fabric, files, memory, {1, 0});
    recorder.open(settings, at::kDouble, "", 1);
    data::Batch batch;
    for (const auto& document : documents) batch.sequences.push_back({.count = static_cast<i64>(document.size())});
    for (i64 step = 0; step < 2; ++step) {
      const auto start = Clock::now();
      recorder.begin(step + 1);
      const batch::StepPlan plan = runtime::tiny_batch(step, documents, plans, {runtime::kLongest});
      const runtime::Probe probe = recorder.planned();
      EXPECT_EQ(probe.spans, step == 1) << "the step of run.trace_step";
      rank.assemble(plan);
      if (step == 0) recorder.aside([] { std::this_thread::sleep_for(std::chrono::duration<double>(kAside)); });
      runtime::StepResult result = rank.run(
          plan, documents, [&](double norm) { return update_settings({}, 1e-3, step + 1, norm); }, probe);
      if (change) change(result, fabric.rank());
      recorder.record({.batch = batch, .plan = plan, .learning_rate = 0.5, .result = result}, rank);
      if (step == 0) whole[static_cast<size_t>(fabric.rank())] = seconds_since(start);
    }
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
  std::istringstream text(job.run.out.empty() ? "" : files::get(job.run.out + "/log.jsonl"));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  if (!lines.empty()) lines[0]["whole_seconds"] = std::ranges::max(whole);
  return lines;
}

TEST(StepRecorder, BringsTheFiguresOfAllRanksTogether) {
  const Scratch scratch;
  const auto lines = record(small_job("data", (scratch / "run").string(), {"run.trace_step=2"}),
                            [](runtime::StepResult& result, int rank) {
                              result.loss = 7;
                              result.norm = 3;
                              result.times.parameters = rank == 1 ? 0.25 : 0.125;
                              result.times.waiting = rank == 1 ? 1e-6 : 0.001;
                            });
  ASSERT_EQ(lines.size(), 2u);
  i64 tokens = 0;
  for (const auto& document : runtime::tiny_documents(4, 5)) tokens += static_cast<i64>(document.size());
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(lines[s].at("step"), s + 1);
    EXPECT_EQ(lines[s].at("loss"), 7);
    EXPECT_EQ(lines[s].at("grad_norm"), 3);
    EXPECT_EQ(lines[s].at("lr"), 0.5);
    EXPECT_EQ(lines[s].at("tokens"), tokens);
    EXPECT_EQ(lines[s].at("switch_seconds"), 0.25) << "the longest";
    EXPECT_EQ(lines[s].at("slowest_rank"), 1) << "the one that waited least";
    EXPECT_NEAR(lines[s].at("slowest_rank_seconds").get<double>(), lines[s].at("seconds").get<double>() - 1e-6, 1e-9);
    EXPECT_NEAR(lines[s].at("slowest_rank_seconds").get<double>() - lines[s].at("median_rank_seconds").get<double>(),
                (0.001 - 1e-6) / 2, 1e-9)
        << "of two ranks their mean";
    EXPECT_EQ(lines[s].at("peak_bytes_per_rank").size(), 2u);
    EXPECT_EQ(lines[s].at("predicted_peak_bytes_per_rank").size(), 2u);
    EXPECT_EQ(lines[s].at("intra_bytes"), 0) << "the ranks are on two hosts";
    EXPECT_GT(lines[s].at("inter_bytes").get<i64>(), 0);
    EXPECT_GT(lines[s].at("matmul_share").get<double>(), 0);
  }
  EXPECT_LE(lines[0].at("seconds").get<double>(), lines[0].at("whole_seconds").get<double>() - kAside)
      << "what is done aside is no part of a step";
  EXPECT_EQ(lines[0].at("inter_bytes"), lines[1].at("inter_bytes")) << "of its own step";
  const auto timeline = nlohmann::json::parse(files::get(scratch / "run/timeline.json"));
  EXPECT_EQ(timeline.at("otherData").at("step"), 2);
}

TEST(StepRecorder, ASkippedUpdateIsToldAndWithoutAFolderNothingIsWritten) {
  testing::internal::CaptureStderr();
  record(small_job("data", "", {"run.trace_step=2"}), [](runtime::StepResult& result, int) { result.finite = false; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("step 1: loss or gradient is not finite; the update was skipped\n"));
}

}  // namespace
}  // namespace switchyard::train
