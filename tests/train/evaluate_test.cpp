#include "train/evaluate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "../files/scratch.hpp"
#include "../message_of.hpp"
#include "base/errors.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "compiler/step_planner.hpp"
#include "data/sources.hpp"
#include "small_run.hpp"
#include "train/train_job.hpp"

namespace switchyard::train {
namespace {

config::Job job_of(const Scratch& scratch, const std::string& out, std::vector<std::string> sets) {
  sets.insert(sets.end(), {"batch.context=600", "bucket.0.max_length=600", "model.vocab_size=1000"});
  return small_job((scratch / "data").string(), out, sets);
}

// The folder of a trained model.
std::string trained(const Scratch& scratch) {
  std::filesystem::create_directories(scratch / "data");
  data::write_corpus(scratch / "data", {600, 4, 300, 257, 7, 2, 519, 16, 299, 5});
  const std::string out = (scratch / "out").string();
  train({job_of(scratch, out,
                {"run.steps=2", "validation.path=" + (scratch / "data").string(), "validation.sequences=10"}),
         ""},
        {});
  return out + "/checkpoints/step-00000002/model";
}

TEST(Evaluate, is_the_validation_loss_of_the_trained_model) {
  const Scratch scratch;
  config::Job job = job_of(scratch, "", {});
  job.model.path = trained(scratch);
  const auto record = evaluate({.job = job}, {});
  ASSERT_TRUE(record);
  const std::string lines = files::get(scratch / "out/validation.jsonl");
  const auto validated = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_NEAR(*record->all.loss, validated.at("loss").get<double>(), 1e-6) << "weights are saved in fp32";
  EXPECT_EQ(record->all.tokens, validated.at("tokens"));
}

TEST(Evaluate, in_parts_and_by_length_it_is_the_same_on_any_ranks) {
  const Scratch scratch;
  config::Job one = job_of(scratch, "", {"run.ranks=1", "bucket.0.strategy=1,1,1", "bucket.1.strategy=1,1,1"});
  config::Job two = job_of(scratch, "", {});
  one.model.path = two.model.path = trained(scratch);
  const auto at_once = evaluate({.job = one}, {});
  std::vector<std::pair<i64, i64>> seen;
  const auto in_parts = evaluate(
      {.job = two, .tokens_per_rank = 150, .progress = [&](i64 done, i64 all) { seen.emplace_back(done, all); }}, {});
  EXPECT_NEAR(*at_once->all.loss, *in_parts->all.loss, 1e-12);
  EXPECT_EQ(in_parts->all.tokens, 2009);
  EXPECT_EQ(in_parts->all.labels, 1999);
  ASSERT_EQ(at_once->lengths.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(at_once->lengths[i].name, i == 0 ? "to 600" : "to 300");
    EXPECT_NEAR(*at_once->lengths[i].loss, *in_parts->lengths[i].loss, 1e-12);
    EXPECT_EQ(in_parts->lengths[i].tokens, i == 0 ? 1119 : 890);
  }
  ASSERT_GT(seen.size(), 3u);
  EXPECT_EQ(seen.front(), std::pair(i64{0}, i64{2009}));
  EXPECT_EQ(seen.back(), std::pair(i64{2009}, i64{2009}));
}

// Bytes that a rank needs at most to evaluate all documents at once, where home is as `zero` says.
i64 need_of(config::Job job, int zero) {
  job.buckets.front().strategy.zero = zero;
  const cluster::Cluster cluster = cluster::uniform(1, job.run.ranks);
  const compiler::Plans plans = compiler::plans_of(job, compiler::evaluated_model_of(job, cluster));
  const std::vector<data::Source> sources = data::open_sources(job);
  std::vector<i64> lengths;
  for (const data::Sequence& sequence : data::sampler_of(sources, job).epoch()) lengths.push_back(sequence.count);
  const batch::StepPlan plan = compiler::planned_batch(compiler::step_settings(job, plans), 0, lengths);
  return compiler::rank_with_highest_peak(compiler::assemble_first(plan, plans, true), plan, plans).second.total;
}

// What ranks store is home, so that none borrows a copy.
TEST(Evaluate, takes_the_memory_of_the_parameters_that_a_rank_stores) {
  if (job_device() != cluster::DeviceType::cpu) GTEST_SKIP() << "devices round budgets up";
  const Scratch scratch;
  const std::string folder = trained(scratch);
  for (const std::string strategy : {"dp=2", "dp=2,zero=2", "1,2,1", "ring=2", "depth=2", "dp=2,zero=3"}) {
    SCOPED_TRACE(strategy);
    config::Job job = small_job(
        (scratch / "data").string(), "",
        {"batch.context=600", "bucket.0.max_length=600", "model.vocab_size=1000", "bucket.0.strategy=" + strategy});
    job.buckets.resize(1);
    job.model.path = folder;
    const auto unlimited = evaluate({.job = job}, {});
    const bool rows = strategy.find("zero=3") != std::string::npos;
    const i64 need = need_of(job, rows ? 3 : 0);
    job.run.memory_budget = Bytes{need};
    EXPECT_EQ(evaluate({.job = job}, {})->all.loss, unlimited->all.loss);
    job.run.memory_budget = Bytes{need - 64};
    const std::string refusal = message_of<UserError>([&] { evaluate({.job = job}, {}); });
    EXPECT_THAT(refusal, testing::MatchesRegex("evaluation: rank . needs .* 64 B more than the memory budget.*"));
    EXPECT_THAT(refusal, testing::Not(testing::HasSubstr("recompute"))) << "there is no backward pass";
    if (strategy.starts_with("dp") && !rows) {
      EXPECT_GT(need_of(job, 1), need) << "home would lie beside the copy";
    }
  }
}

TEST(Evaluate, takes_as_many_documents_as_are_asked_for) {
  const Scratch scratch;
  config::Job job = job_of(scratch, "", {});
  job.model.path = trained(scratch);
  const auto record = evaluate({.job = job, .sequences = 3}, {});
  EXPECT_LT(record->all.tokens, 2009);
  EXPECT_EQ(record->all.tokens - record->all.labels, 3);
}

}  // namespace
}  // namespace switchyard::train
