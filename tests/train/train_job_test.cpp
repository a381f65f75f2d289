#include "train/train_job.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "../files/scratch.hpp"
#include "base/errors.hpp"
#include "files/run_lock.hpp"
#include "small_run.hpp"

namespace switchyard::train {
namespace {

std::vector<nlohmann::json> log_of(const std::filesystem::path& out) {
  std::istringstream text(files::get(out / "log.jsonl"));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class TrainJob : public testing::Test {
 protected:
  TrainJob() { write_small_corpus(scratch_ / "data"); }
  config::Job job(const std::string& out, const std::vector<std::string>& sets = {}) const {
    return small_job((scratch_ / "data").string(), (scratch_ / out).string(), sets);
  }
  Scratch scratch_;
};

TEST_F(TrainJob, WritesAnEntryForEveryStep) {
  train({job("a"), ""}, {});
  const auto lines = log_of(scratch_ / "a");
  ASSERT_EQ(lines.size(), 4u);
  for (size_t s = 0; s < lines.size(); ++s) {
    EXPECT_EQ(lines[s].at("step"), s + 1);
    EXPECT_NEAR(lines[s].at("loss").get<double>(), std::log(131.0), 1.0);
    EXPECT_GT(lines[s].at("grad_norm").get<double>(), 0);
    EXPECT_EQ(lines[s].at("lr"), 1e-2);
    EXPECT_GE(lines[s].at("tokens").get<i64>(), 12);
    EXPECT_GT(lines[s].at("seconds").get<double>(), 0);
    EXPECT_EQ(lines[s].at("peak_bytes_per_rank").size(), 2u);
    EXPECT_GT(lines[s].at("peak_bytes_per_rank")[1].get<i64>(), 1000);
    EXPECT_GT(lines[s].at("intra_bytes").get<i64>(), 0);
    EXPECT_EQ(lines[s].at("inter_bytes"), 0);
    EXPECT_FALSE(lines[s].at("skipped").get<bool>());
  }
  EXPECT_EQ(config::job_from_toml(files::get(scratch_ / "a/job.toml"), "job.toml"), job("a"));
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "a/checkpoints/step-00000004/COMMITTED"));
}

TEST_F(TrainJob, KeepsThePlanOfItsOwnStrategiesOnly) {
  const std::vector<std::string> one = {"run.steps=1", "run.checkpoint_every=0"};
  train({.job = job("a", one), .plan_json = "compared"}, {});
  EXPECT_EQ(files::get(scratch_ / "a/plan.json"), "compared");
  train({.job = job("a", one), .force = true}, {});
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a/plan.json"));
}

TEST_F(TrainJob, ResumesUnderOtherStrategiesAndRanksWithTheSameLosses) {
  train({job("a"), ""}, {});
  const auto whole = log_of(scratch_ / "a");
  const std::vector<std::string> others = {"run.ranks=4", "bucket.0.strategy=\"1,2,2\"", "bucket.1.strategy=\"4,1,1\""};
  train({job("b", others), (scratch_ / "a/checkpoints/step-00000002").string()}, {});
  const auto rest = log_of(scratch_ / "b");
  ASSERT_EQ(rest.size(), 2u);
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(rest[s].at("step"), s + 3);
    EXPECT_EQ(rest[s].at("tokens"), whole[s + 2].at("tokens"));
    EXPECT_NEAR(rest[s].at("loss").get<double>(), whole[s + 2].at("loss").get<double>(), 1e-9);
    EXPECT_NEAR(rest[s].at("grad_norm").get<double>(), whole[s + 2].at("grad_norm").get<double>(), 1e-9);
  }
  EXPECT_NE(whole[2].at("loss"), whole[0].at("loss"));
}

// Where messages take no time documents are quicker on both devices, otherwise on one.
cluster::Hardware two_devices(double latency) {
  cluster::Hardware hardware;
  hardware.name = "two devices";
  hardware.devices_per_host = 2;
  hardware.device.rates[DType::f64] = {{1e9}, {1e12}, {}};
  hardware.intra_host = {{latency}, {1e12}, 1, {}};
  hardware.inter_host = hardware.intra_host;
  return hardware;
}

TEST_F(TrainJob, ChoosesTheBucketsOfEachStepAndLosesNothing) {
  train({job("fixed"), ""}, {});
  const auto fixed = log_of(scratch_ / "fixed");
  const auto chosen = [&](const std::string& out, double latency, const std::string& resume = "") {
    train({.job = job(out, {"run.choose_buckets=true", "bucket.1.max_length=32", "bucket.1.strategy=1,1,1"}),
           .resume = resume,
           .hardware = two_devices(latency)},
          {});
    const auto lines = log_of(scratch_ / out);
    for (size_t s = 0; s < lines.size(); ++s) {
      EXPECT_NEAR(lines[s].at("loss").get<double>(), fixed[s].at("loss").get<double>(), 1e-9);
      EXPECT_NEAR(lines[s].at("grad_norm").get<double>(), fixed[s].at("grad_norm").get<double>(), 1e-9);
      EXPECT_EQ(lines[s].at("tokens"), fixed[s].at("tokens"));
    }
    return lines;
  };
  const auto on_both = chosen("on_both", 0), on_one = chosen("on_one", 1);
  for (size_t s = 0; s < fixed.size(); ++s) {
    EXPECT_FALSE(fixed[s].contains("chosen_buckets"));
    EXPECT_EQ(on_both[s].at("chosen_buckets"), (std::vector<int>{0}));
    EXPECT_EQ(on_one[s].at("chosen_buckets"), (std::vector<int>{1}));
  }
  const auto again = chosen("on_one", 1, (scratch_ / "on_one/checkpoints/step-00000002").string());
  ASSERT_EQ(again.size(), on_one.size());
  for (size_t s = 0; s < on_one.size(); ++s) EXPECT_EQ(again[s].at("loss"), on_one[s].at("loss"));
}

TEST_F(TrainJob, ResumesInTheSameFolderWithTheSameBits) {
  train({job("a"), ""}, {});
  const auto whole = log_of(scratch_ / "a");
  train({job("a"), (scratch_ / "a/checkpoints/step-00000002").string()}, {});
  const auto again = log_of(scratch_ / "a");
  ASSERT_EQ(again.size(), 4u);
  for (size_t s = 0; s < 4; ++s) EXPECT_EQ(again[s].at("loss"), whole[s].at("loss"));
}

std::vector<i64> steps_of(const std::vector<nlohmann::json>& log) {
  std::vector<i64> steps;
  for (const auto& line : log) steps.push_back(line.at("step"));
  return steps;
}

// Residuals of both buckets' gradients.
TEST_F(TrainJob, ResumesWithWhatCodecsLostWithTheSameBits) {
  const std::vector<std::string> sets = {"run.ranks=4", "bucket.0.strategy=\"2,2,1\"",
                                         "bucket.1.strategy=\"dp=4,zero=2\"", "compression.gradients=\"top-1-of-32\"",
                                         "compression.smallest=0"};
  train({job("a", sets), ""}, {});
  const auto whole = log_of(scratch_ / "a");
  train({job("b", sets), (scratch_ / "a/checkpoints/step-00000002").string()}, {});
  const auto rest = log_of(scratch_ / "b");
  ASSERT_EQ(rest.size(), 2u);
  for (size_t s = 0; s < 2; ++s)
    for (const char* key : {"loss", "grad_norm"}) EXPECT_EQ(rest[s].at(key), whole[s + 2].at(key)) << key;
  const std::filesystem::path end = "checkpoints/step-00000004/state";
  for (const auto& file : std::filesystem::directory_iterator(scratch_ / "a" / end))
    EXPECT_EQ(files::get(file.path()), files::get(scratch_ / "b" / end / file.path().filename()));
  EXPECT_THAT(files::get(scratch_ / "a" / end / "manifest.json"), testing::HasSubstr("\"residual\""));

  auto plain = sets;
  plain.push_back("compression.error_feedback=\"off\"");
  train({job("c", plain), ""}, {});
  EXPECT_NE(log_of(scratch_ / "c")[3].at("loss"), whole[3].at("loss"));
}

// Each rank sends one gradient of 128, so that without feedback most elements' gradients never arrive.
TEST_F(TrainJob, ErrorFeedbackReachesTheLossThatTheLargestElementsAloneDoNot) {
  const auto loss = [&](const std::string& codec, const std::string& feedback) {
    const std::string out = codec + feedback;
    train({job(out, {"run.ranks=4", "bucket.0.strategy=\"4,1,1\"", "bucket.1.strategy=\"4,1,1\"", "run.steps=120",
                     "run.checkpoint_every=0", "run.save_last=false", "run.log_every=1000",
                     "compression.gradients=\"" + codec + "\"", "compression.error_feedback=\"" + feedback + "\"",
                     "compression.smallest=0"}),
           ""},
          {});
    const auto lines = log_of(scratch_ / out);
    double sum = 0;
    for (size_t s = lines.size() - 6; s < lines.size(); ++s) sum += lines[s].at("loss").get<double>() / 6;
    return sum;
  };
  const double exact = loss("none", "auto");
  EXPECT_LT(exact, 0.01);
  EXPECT_NEAR(loss("top-1-of-128", "auto"), exact, 0.02);
  EXPECT_GT(loss("top-1-of-128", "off"), exact + 0.05);
}

TEST_F(TrainJob, GoingBackSetsLaterCheckpointsAsideAndKeepsTheNewOnes) {
  const auto until = [&](i64 steps, const char* lr) {
    return job("a", {"run.steps=" + std::to_string(steps), "run.checkpoint_every=1", "run.keep_checkpoints=2", lr});
  };
  const std::filesystem::path out = scratch_ / "a", first = out / "checkpoints/step-00000003";
  train({until(4, "optimizer.lr=1e-2"), ""}, {});
  const std::string before = files::get(out / "log.jsonl");
  testing::internal::CaptureStderr();
  train({until(5, "optimizer.lr=2e-2"), first.string()}, {});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("checkpoints of steps 4 are set aside in " + (out / "abandoned-1").string() +
                                 ", with the log as it was\n"));
  EXPECT_TRUE(std::filesystem::exists(out / "checkpoints/step-00000004/COMMITTED"));
  EXPECT_TRUE(std::filesystem::exists(out / "checkpoints/step-00000005/COMMITTED"));
  EXPECT_EQ(files::get(out / "abandoned-1/log.jsonl"), before);
  EXPECT_EQ(steps_of(log_of(out)), (std::vector<i64>{1, 2, 3, 4, 5}));
  EXPECT_EQ(log_of(out)[4].at("lr"), 2e-2);

  // The run goes on from the new line, the old one in a folder of its own.
  train({until(6, "optimizer.lr=2e-2"), out.string()}, {});
  EXPECT_EQ(steps_of(log_of(out)), (std::vector<i64>{1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(std::filesystem::exists(out / "abandoned-2"));
  train({job("b", {"run.steps=5", "optimizer.lr=1e-2"}), (out / "abandoned-1").string()}, {});
  EXPECT_EQ(steps_of(log_of(scratch_ / "b")), std::vector<i64>{5});
}

TEST_F(TrainJob, ACheckpointOfAnotherRunIsNoReasonToTrainInAFolderThatHoldsARun) {
  for (const char* out : {"a", "b"}) train({job(out), ""}, {});
  EXPECT_EQ(message_of<UserError>([&] {
              train({job("b", {"run.steps=6"}), (scratch_ / "a").string()}, {});
            }),
            (scratch_ / "b").string() + " holds a run already, with a checkpoint of step 4. Go on with --resume " +
                (scratch_ / "b").string() +
                ", start anew with --force, which sets it aside, or choose another run.out.");
}

TEST_F(TrainJob, AUsedFolderKeepsItsLogUnlessItIsForcedAndThenAllOfItIsSetAside) {
  const std::filesystem::path out = scratch_ / "a";
  train({job("a", {"run.steps=2", "run.checkpoint_every=0", "run.save_last=false"}), ""}, {});
  EXPECT_FALSE(std::filesystem::exists(out / "checkpoints")) << "run.save_last";
  const std::string log = files::get(out / "log.jsonl");
  EXPECT_EQ(message_of<UserError>([&] {
              train({job("a"), ""}, {});
            }),
            out.string() +
                " holds the log of a run without checkpoints already. Either start anew with --force, which sets it "
                "aside, or choose another run.out.");
  EXPECT_EQ(files::get(out / "log.jsonl"), log);
  files::put(out / "mine.txt", "not the run's");
  testing::internal::CaptureStderr();
  train({.job = job("a"), .force = true}, {});
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::StartsWith("the run in " + out.string() + " is set aside in " + (out / "abandoned-1").string() + "\n"));
  EXPECT_EQ(files::get(out / "abandoned-1/log.jsonl"), log);
  EXPECT_TRUE(std::filesystem::exists(out / "mine.txt"));
  train({.job = job("a", {"run.steps=1"}), .force = true}, {});
  EXPECT_TRUE(std::filesystem::exists(out / "abandoned-2/checkpoints/step-00000004/COMMITTED"));
  EXPECT_EQ(log_of(out).size(), 1u);
}

TEST_F(TrainJob, ARunThatGoesOnUnderAnotherScheduleSaysSo) {
  const std::string out = (scratch_ / "a").string();
  train({job("a", {"optimizer.schedule=linear", "optimizer.lr=1e-2"}), ""}, {});
  const auto told = [&](const std::string& schedule) {
    testing::internal::CaptureStderr();
    train(
        {.job = job("b", {schedule, "optimizer.lr=1e-2"}), .resume = out + "/checkpoints/step-00000002", .force = true},
        {});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(
      told("optimizer.schedule=constant"),
      testing::HasSubstr("the learning rate was linear from 0.01 to 0 at step 4; it goes on as constant at 0.01\n"));
  EXPECT_THAT(told("optimizer.schedule=linear"), testing::Not(testing::HasSubstr("the learning rate was")));
}

TEST_F(TrainJob, ARunKeepsItsLastStepOnlyIfThereAreNoOthersToKeep) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(train({job("a", {"run.checkpoint_every=0"}), ""}, {}), 0);
  const std::filesystem::path last = scratch_ / "a/checkpoints/step-00000004";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::EndsWith("saved step 4: " + last.string() + "\n"));
  EXPECT_TRUE(std::filesystem::exists(last / "COMMITTED"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a/checkpoints/step-00000002"));
}

TEST_F(TrainJob, ASignalEndsTheRunAfterItsStepWithACheckpoint) {
  const std::filesystem::path out = scratch_ / "a";
  testing::internal::CaptureStderr();
  std::jthread sender([&] {
    while (!std::filesystem::exists(out / "log.jsonl") || files::get(out / "log.jsonl").empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::raise(SIGUSR1);
  });
  EXPECT_EQ(train({job("a", {"run.steps=100000", "run.checkpoint_every=0"}), ""}, {}), SIGUSR1);
  const auto steps = log_of(out).size();
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told,
              testing::HasSubstr(fmt::format("saved step {0}: {1}/checkpoints/step-{0:08}\nSIGUSR1: stopped after "
                                             "step {0} of 100000\n",
                                             steps, out.string())));
  train({job("a", {fmt::format("run.steps={}", steps + 1)}), out.string()}, {});
  EXPECT_EQ(log_of(out).size(), steps + 1);
}

TEST_F(TrainJob, TwoRunsInOneFolderAreRefused) {
  const files::RunLock other = files::RunLock::take(scratch_ / "a");
  EXPECT_THAT(message_of<UserError>([&] {
                train({job("a"), ""}, {});
              }),
              testing::StartsWith((scratch_ / "a").string() + " is in use by another run: process "));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a/log.jsonl"));
}

TEST_F(TrainJob, AModelThatHuggingFaceCannotSayIsRefusedBeforeTheFirstStepIfACheckpointIsDue) {
  const std::vector<std::string> biases = {"model.qkv_bias=true"};
  EXPECT_EQ(message_of<UserError>([&] {
              train({job("a", biases), ""}, {});
            }),
            "checkpoints hold a Hugging Face model, and this one can't be exported: Hugging Face's llama has no model "
            "with qkv_bias = true, "
            "o_bias = false, mlp_bias = false, qk_norm = false. Change them, or the architecture. Or train without "
            "checkpoints: "
            "run.checkpoint_every = 0, run.save_last = false.");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a"));
  train({job("a", {"model.qkv_bias=true", "run.checkpoint_every=0", "run.save_last=false"}), ""}, {});
  EXPECT_EQ(log_of(scratch_ / "a").size(), 4u);
}

TEST_F(TrainJob, StrictChecksOfMessagesPassWithCheckpointsTimelinesAndResuming) {
  const std::vector<std::string> plain = {"run.trace_step=2"}, strict = {"run.trace_step=2", "fabric.strict=true"};
  train({job("a", plain), ""}, {});
  train({job("b", strict), ""}, {});
  train({job("b", strict), (scratch_ / "b/checkpoints/step-00000002").string()}, {});
  const auto expected = log_of(scratch_ / "a"), log = log_of(scratch_ / "b");
  ASSERT_EQ(log.size(), 4u);
  for (size_t s = 0; s < 4; ++s) EXPECT_EQ(log[s].at("loss"), expected[s].at("loss"));
}

// A job with two corpora, the second with a mask.
class TwoSources : public TrainJob {
 protected:
  TwoSources() {
    data::write_corpus(made("other"), {9, 20, 31, 12, 6, 18});
    std::vector<int> counts(9 + 20 + 31 + 12 + 6 + 18);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = i % 3 != 0;
    data::write_mask(scratch_ / "other", counts);
  }
  std::filesystem::path made(const std::string& name) const {
    std::filesystem::create_directories(scratch_ / name);
    return scratch_ / name;
  }
  config::Job two(const std::string& out, const std::vector<std::string>& sets = {}) const {
    config::Job both = job(out, sets);
    both.data.path.clear();
    both.data.sources = {{(scratch_ / "data").string(), 1, "first"}, {(scratch_ / "other").string(), 3, "second"}};
    return both;
  }
};

TEST_F(TwoSources, LogTheirLossesWhichAgreeUnderAnyStrategies) {
  train({two("a"), ""}, {});
  train({two("b", {"run.ranks=4", "bucket.0.strategy=\"1,2,2\"", "bucket.1.strategy=\"ulysses=4\""}), ""}, {});
  const auto a = log_of(scratch_ / "a"), b = log_of(scratch_ / "b");
  i64 first = 0, second = 0;
  for (size_t s = 0; s < 4; ++s) {
    for (const char* key : {"loss", "loss/first", "loss/second", "grad_norm"})
      EXPECT_NEAR(b[s].at(key).get<double>(), a[s].at(key).get<double>(), 1e-10) << key;
    const double of_first = a[s].at("loss/first"), of_second = a[s].at("loss/second"), all = a[s].at("loss");
    EXPECT_LT(std::min(of_first, of_second), all);
    EXPECT_GT(std::max(of_first, of_second), all);
    EXPECT_NEAR(of_second, std::log(131.0), 1.5) << "the mean over the labels that count";
    first += a[s].at("tokens/first").get<i64>();
    second += a[s].at("tokens/second").get<i64>();
    EXPECT_EQ(a[s].at("tokens/first").get<i64>() + a[s].at("tokens/second").get<i64>(), a[s].at("tokens"));
  }
  EXPECT_NEAR(static_cast<double>(second), 3 * static_cast<double>(first), 4 * 32.0);
  EXPECT_FALSE(log_of(scratch_ / "a")[0].contains("loss/"));
}

TEST_F(TwoSources, ResumeWithTheSameBits) {
  train({two("a", {"run.steps=6"}), ""}, {});
  const auto whole = log_of(scratch_ / "a");
  train({two("b", {"run.steps=6"}), (scratch_ / "a/checkpoints/step-00000002").string()}, {});
  const auto rest = log_of(scratch_ / "b");
  ASSERT_EQ(rest.size(), 4u);
  for (size_t s = 0; s < 4; ++s)
    for (const char* key : {"loss", "loss/first", "loss/second", "tokens/first", "tokens/second", "grad_norm"})
      EXPECT_EQ(rest[s].at(key), whole[s + 2].at(key)) << key;
}

TEST_F(TwoSources, AMaskChangesWhatIsTrained) {
  config::Job masked = job("a"), plain = job("b");
  masked.data.path = (scratch_ / "other").string();
  data::write_corpus(made("plain"), {9, 20, 31, 12, 6, 18});
  plain.data.path = (scratch_ / "plain").string();
  train({masked, ""}, {});
  train({plain, ""}, {});
  const auto a = log_of(scratch_ / "a"), b = log_of(scratch_ / "b");
  EXPECT_FALSE(a[0].contains("loss/second")) << "one source has no part of its own";
  EXPECT_EQ(a[0].at("tokens"), b[0].at("tokens"));
  EXPECT_NE(a[0].at("loss"), b[0].at("loss"));
  EXPECT_NEAR(a[0].at("loss").get<double>(), b[0].at("loss").get<double>(), 0.5);
}

TEST_F(TrainJob, AJobWithoutDataOrStepsIsRefused) {
  config::Job without = job("a"), endless = without;
  without.data.path.clear();
  EXPECT_EQ(message_of<UserError>([&] {
              train({without, ""}, {});
            }),
            "data.path is missing. Make a folder with `switchyard data prepare` and name it there.");
  endless.run.steps = 0;
  EXPECT_EQ(message_of<UserError>([&] {
              train({endless, ""}, {});
            }),
            "run.steps is missing. Say how many optimizer steps to train, such as steps = 100.");
}

// What a rank needs depends on the pace of its streams where there are pipelines or switches, else it is known to the
// byte.
TEST_F(TrainJob, NoRankEverNeedsMoreThanTheBoundAndExactlyThatWhereTheOrderIsFixed) {
  std::vector<std::pair<bool, std::vector<std::string>>> cases;
  for (const char* strategy : {"1,1,1", "1,2,1", "2,2,1", "1,4,1", "4,1,1", "ulysses=4", "tp=2,ulysses=2",
                               "dp=2,ulysses=2", "tp=4,inner=2", "tp=4,inner=4,sequence_parallel=false"})
    cases.push_back({true, {fmt::format("bucket.0.strategy=\"{}\"", strategy)}});
  cases.push_back({true,
                   {"bucket.0.strategy=\"tp=4,inner=2,sequence_parallel=false\"", "model.architecture=\"gpt2\"",
                    "model.kv_heads=4"}});
  for (const char* strategy : {"1,1,2", "1,2,2", "2,1,2", "tp=2,pp=2,inner=2"})
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zb-v"})
      cases.push_back(
          {false,
           {fmt::format("bucket.0.strategy=\"{}\"", strategy), fmt::format("parallel.schedule=\"{}\"", schedule)}});
  cases.push_back(
      {false, {"bucket.0.strategy=\"1,1,4\"", "parallel.schedule=\"zero-bubble\"", "parallel.activation_cap=8"}});
  cases.push_back(
      {false, {"bucket.0.strategy=\"1,1,4\"", "parallel.schedule=\"1f1b\"", "parallel.recompute=\"full\""}});
  for (const char* precision : {"fp64", "fp32"})
    for (size_t c = 0; c < cases.size(); ++c) {
      if (precision == std::string("fp32") && !cases[c].first) continue;
      const std::string out = fmt::format("{}-{}", precision, c);
      std::vector<std::string> sets = cases[c].second;
      sets.insert(sets.end(), {"bucket.1.max_length=1", "bucket.1.strategy=" + sets[0].substr(sets[0].find('=') + 1),
                               "run.ranks=4", "model.layers=4", "batch.sequences=12", "parallel.micro_batch_tokens=64",
                               "run.steps=2", "run.checkpoint_every=0", "run.save_last=false"});
      sets.push_back(fmt::format("run.precision=\"{}\"", precision));
      train({job(out, sets), ""}, {});
      for (const auto& line : log_of(scratch_ / out))
        for (size_t rank = 0; rank < 4; ++rank) {
          const auto measured = line.at("peak_bytes_per_rank")[rank].get<i64>(),
                     bound = line.at("peak_bound_bytes_per_rank")[rank].get<i64>();
          EXPECT_LE(measured, bound) << sets[0] << " " << sets[1] << " " << precision << " rank " << rank;
          EXPECT_LE(line.at("predicted_peak_bytes_per_rank")[rank].get<i64>(), bound);
          EXPECT_TRUE(!cases[c].first || measured == bound)
              << measured << " of " << bound << " " << sets[0] << " " << precision << " rank " << rank;
        }
    }
}

TEST_F(TrainJob, TheMeasuredPeakOfEveryRankIsThePredictedOne) {
  // Activations outweigh what the pace of switches and reductions decides.
  const std::filesystem::path data = scratch_ / "long";
  std::filesystem::create_directories(data);
  data::write_corpus(data, {800, 500, 180, 620, 240, 120, 760, 400});
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"run.prefetch=false"},
      {"bucket.0.strategy=\"1,1,2\"", "bucket.1.strategy=\"1,2,1\"", "parallel.recompute=\"full\""},
      {"run.ranks=4", "bucket.0.strategy=\"1,2,2\"", "bucket.1.strategy=\"4,1,1\"", "run.precision=\"fp32\""},
      {"run.ranks=4", "bucket.0.strategy=\"2,1,2\"", "bucket.1.strategy=\"1,4,1\"", "parallel.schedule=\"gpipe\""},
      {"run.ranks=4", "model.layers=4", "bucket.0.strategy=\"2,1,2\"", "bucket.1.strategy=\"1,2,2\"",
       "parallel.schedule=\"interleaved\""},
      {"run.ranks=4", "model.layers=4", "bucket.0.strategy=\"1,1,4\"", "bucket.1.strategy=\"2,1,2\"",
       "parallel.schedule=\"zero-bubble\""},
      {"run.ranks=4", "model.layers=4", "bucket.0.strategy=\"1,2,2\"", "bucket.1.strategy=\"2,1,2\"",
       "parallel.schedule=\"zb-v\"", "parallel.recompute=\"selective\""},
      {"model.attention=\"unfused\"", "parallel.recompute=\"selective\"", "bucket.0.strategy=\"1,2,1\""},
      {"run.precision=\"bf16\""},
      {"run.ranks=4", "bucket.0.strategy=\"2,2,1\"", "bucket.1.strategy=\"4,1,1\"", "parallel.zero=0"},
      {"run.ranks=4", "bucket.0.strategy=\"tp=2,ulysses=2\"", "bucket.1.strategy=\"dp=2,ulysses=2\""}};
  for (size_t c = 0; c < cases.size(); ++c) {
    const std::string out = "case" + std::to_string(c);
    std::vector<std::string> sets = cases[c];
    sets.insert(sets.end(), {"data.path=\"" + data.string() + "\"", "model.vocab_size=850", "batch.context=1024",
                             "bucket.0.max_length=1024", "bucket.1.max_length=512", "run.checkpoint_every=0",
                             "run.save_last=false", "run.steps=2"});
    train({job(out, sets), ""}, {});
    for (const auto& line : log_of(scratch_ / out)) {
      const auto &measured = line.at("peak_bytes_per_rank"), &predicted = line.at("predicted_peak_bytes_per_rank");
      ASSERT_EQ(measured.size(), predicted.size());
      for (size_t rank = 0; rank < measured.size(); ++rank) {
        EXPECT_NEAR(predicted[rank].get<double>() / measured[rank].get<double>(), 1, 0.1)
            << "case " << c << " rank " << rank;
        if (job(out, sets).run.precision == "bf16") continue;  // what kernels copy to fp32 is estimated
        EXPECT_LE(measured[rank].get<i64>(), line.at("peak_bound_bytes_per_rank")[rank].get<i64>())
            << "case " << c << " rank " << rank;
      }
    }
  }
}

TEST_F(TrainJob, ARankTakesThePredictedBytesInEveryStepWithAnyNumberOfThreads) {
  // Long documents, and more features in attention than elsewhere: its backward pass takes most memory. One
  // document a step: rotary tables grow from step to step.
  const std::filesystem::path data = scratch_ / "long";
  std::filesystem::create_directories(data);
  data::write_corpus(data, {800, 500, 680, 620});
  for (const char* precision : {"fp32", "fp64"}) {
    std::vector<std::string> peaks;
    for (const char* threads : {"1", "2", "4"}) {
      const std::string out = fmt::format("{}-{}", precision, threads);
      std::vector<std::string> sets = {
          "batch.context=1024",   "batch.sequences=1",      "bucket.0.max_length=1024",    "bucket.1.max_length=1",
          "model.vocab_size=900", "model.heads=16",         "model.kv_heads=16",           "model.head_dim=16",
          "run.steps=4",          "run.checkpoint_every=0", "parallel.recompute=\"full\"", "run.save_last=false"};
      for (const char* bucket : {"0", "1"}) sets.push_back(fmt::format("bucket.{}.strategy=\"1,2,1\"", bucket));
      sets.push_back(fmt::format("data.path=\"{}\"", data.string()));
      sets.push_back(fmt::format("run.precision=\"{}\"", precision));
      sets.push_back(fmt::format("run.threads={}", threads));
      train({job(out, sets), ""}, {});
      std::string all;
      for (const auto& line : log_of(scratch_ / out)) {
        EXPECT_EQ(line.at("peak_bytes_per_rank"), line.at("predicted_peak_bytes_per_rank"))
            << precision << ", threads " << threads;
        all += line.at("peak_bytes_per_rank").dump();
      }
      peaks.push_back(all);
    }
    EXPECT_THAT(peaks, testing::Each(peaks[0]));
  }
}

TEST_F(TrainJob, ACheckpointNeverTakesMemoryThatAStepNeedsAndItsCopyIsPredicted) {
  const auto bounds_of = [&](const char* out) {
    i64 least = std::numeric_limits<i64>::max(), most = 0;
    for (const auto& line : log_of(scratch_ / out)) {
      const auto measured = line.at("peak_bytes_per_rank").get<std::vector<i64>>(),
                 bound = line.at("peak_bound_bytes_per_rank").get<std::vector<i64>>();
      for (size_t rank = 0; rank < measured.size(); ++rank) EXPECT_LE(measured[rank], bound[rank]) << line;
      least = std::min(least, std::ranges::max(bound));
      most = std::max(most, std::ranges::max(bound));
    }
    return std::pair(least, most);
  };
  train({job("without", {"run.checkpoint_every=0", "run.save_last=false"}), ""}, {});
  train({job("with", {"run.checkpoint_every=1"}), ""}, {});
  const auto [least, most] = bounds_of("without");
  bounds_of("with");
  train({job("tight", {"run.checkpoint_every=1", fmt::format("run.memory_budget=\"{} KiB\"", most / 1024 + 1)}), ""},
        {});
  EXPECT_LE(bounds_of("tight").second, most + most) << "with a copy beside it at most";
  const auto expected = log_of(scratch_ / "without");
  train({job("waiting", {"run.checkpoint_every=1", "run.async_save=false"}), ""}, {});
  EXPECT_EQ(bounds_of("waiting"), std::pair(least, most)) << "nothing is copied";
  for (const char* out : {"with", "tight", "waiting"}) {
    const auto log = log_of(scratch_ / out);
    ASSERT_EQ(log.size(), expected.size());
    for (size_t s = 0; s < log.size(); ++s) {
      EXPECT_EQ(log[s].at("loss"), expected[s].at("loss"));
      EXPECT_EQ(log[s].contains("checkpoint_seconds"), s > 0) << "a checkpoint came before every step but the first";
    }
  }
}

TEST_F(TrainJob, AModelThatDoesNotFitTheBudgetIsRefusedWithTheClassThatIsLargest) {
  using testing::AllOf;
  using testing::HasSubstr;
  const auto refusal = [&](const std::string& budget) {
    return message_of<UserError>([&] { train({job("a", {"run.memory_budget=\"" + budget + "\""}), ""}, {}); });
  };
  EXPECT_THAT(refusal("100 KiB"), AllOf(HasSubstr("more than the memory budget. Most of it: moments. In all "),
                                        HasSubstr("run.memory_budget = \"100 KiB\"")));
  const std::string later = refusal("700 KiB");
  EXPECT_THAT(later,
              AllOf(HasSubstr("step 1: rank "), HasSubstr(" under strategy \""), HasSubstr("recompute = \"full\"")));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a/checkpoints"));
}

}  // namespace
}  // namespace switchyard::train
