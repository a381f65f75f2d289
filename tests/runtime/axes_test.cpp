// On any mesh, a step gives the numbers of training on one rank.
#include <gmock/gmock.h>

#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using config::Recompute;
using config::ScheduleKind;
using testing::Each;
using testing::IsEmpty;

// 8 query heads, 4 key/value heads, 4 layers.
config::ModelConfig wide_llama() {
  config::ModelConfig model = tiny_llama();
  model.layers = 4;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_dim = 4;
  return model;
}

config::ModelConfig small_gpt2() {
  config::ModelConfig model = config::family_defaults(config::Family::gpt2);
  model.layers = 4;
  model.hidden_size = 32;
  model.heads = model.kv_heads = 4;
  model.head_dim = 8;
  model.ffn_size = 48;
  model.vocab_size = 41;
  model.max_positions = 64;
  model.attention = config::AttentionKind::unfused;
  model.dropout = 0.1;
  return model;
}

compiler::Plans plans_of(const config::ModelConfig& model, const std::vector<std::string>& specs, int ranks) {
  ir::Graph graph = models::build(model, kFp64, models::Output::loss);
  ir::differentiate(graph);
  std::vector<config::Strategy> strategies;
  for (const std::string& spec : specs) {
    strategies.push_back(config::strategy_from_spec(spec, ranks, model.layers));
    config::validate(strategies.back(), model, ranks);
  }
  const int hosts = ranks % 2 == 0 ? 2 : 1;
  return compiler::Plans(std::move(graph), std::move(strategies), 0, cluster::uniform(hosts, ranks / hosts),
                         switching::Planner::relay);
}

std::vector<Documents> two_batches() { return {tiny_documents(13, 1), tiny_documents(11, 2)}; }

void expect_like_one_rank(const config::ModelConfig& model, const std::vector<std::string>& specs, int ranks,
                          const std::vector<i64>& bounds = {kLongest}) {
  const TinyRun run = run_tiny(plans_of(model, specs, ranks), two_batches(), {.bounds = bounds}),
                one = run_tiny(plans_of(model, {"1,1,1"}, 1), two_batches());
  ASSERT_THAT(run.ends, Each(IsEmpty()));
  for (size_t s = 0; s < run.steps.size(); ++s) {
    EXPECT_NEAR(run.steps[s].loss, one.steps[s].loss, 1e-10 * one.steps[s].loss);
    EXPECT_NEAR(run.steps[s].norm, one.steps[s].norm, 1e-10 * one.steps[s].norm);
  }
  for (size_t p = 0; p < run.master.size(); ++p)
    EXPECT_LT(gap(run.master[p], one.master[p]), 1e-10) << "parameter " << p;
}

class Ulysses : public testing::TestWithParam<const char*> {};

TEST_P(Ulysses, EqualsOneRank) {
  const config::StrategyText text = config::read_strategy_text(GetParam());
  const int ranks = static_cast<int>(config::ranks_of(text.degrees));
  expect_like_one_rank(wide_llama(), {GetParam()}, ranks);
  if (text.degrees.tp * text.degrees.ulysses <= 4) expect_like_one_rank(small_gpt2(), {GetParam()}, ranks);
}

// tp=2,ulysses=4: 4 key/value heads are cut by outer and half of ulysses, and copied over the other half.
INSTANTIATE_TEST_SUITE_P(Meshes, Ulysses,
                         testing::Values("ulysses=2", "ulysses=4", "tp=2,ulysses=4", "ulysses=8", "tp=4,ulysses=2",
                                         "ulysses=3", "tp=2,ulysses=2,sequence_parallel=false",
                                         "tp=2,ulysses=4,sequence_parallel=false", "dp=2,ulysses=2,zero=0",
                                         "dp=2,tp=2,ulysses=2", "pp=2,ulysses=2,recompute=full",
                                         "tp=2,ulysses=2,recompute=selective", "pp=2,ulysses=2,schedule=zero-bubble",
                                         "tp=2,pp=2,ulysses=2,schedule=zb-v,recompute=selective",
                                         "pp=2,ulysses=2,schedule=interleaved",
                                         "ulysses=4,schedule=zero-bubble,recompute=full"),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

TEST(Ulysses, SwitchesInsideAStepToAndFromOtherMeshes) {
  expect_like_one_rank(wide_llama(), {"tp=2,ulysses=2", "4,1,1"}, 4, {24, 12});
  expect_like_one_rank(wide_llama(), {"1,4,1", "ulysses=4", "dp=2,ulysses=2"}, 4, {24, 14, 8});
  expect_like_one_rank(wide_llama(), {"pp=2,ulysses=2,schedule=zb-v", "dp=2,tp=2"}, 4, {24, 12});
}

}  // namespace
}  // namespace switchyard::runtime
