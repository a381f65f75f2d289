// On any mesh, a step gives the numbers of training on one rank.
#include <gmock/gmock.h>

#include <map>

#include "ir/operators/embedding.hpp"
#include "ir/operators/linear.hpp"
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

// With norms of queries and keys, biases wherever there can be some, and one matrix for embedding and head.
config::ModelConfig tied_llama_with_biases() {
  config::ModelConfig model = wide_llama();
  model.qkv_bias = model.o_bias = model.mlp_bias = model.qk_norm = model.tied_embeddings = true;
  return model;
}

// Documents have 1 to 24 tokens: most have frequencies of their own.
config::ModelConfig dynamic_llama() {
  config::ModelConfig model = wide_llama();
  model.rope_scaling = {.factor = 4, .original_context = 6, .type = config::RopeScalingType::dynamic};
  return model;
}

// With norms of all queries and all keys, over what inner cuts. By the usual epsilon, norms of what small blocks add
// magnify rounding a millionfold, with tensor parallelism alone, too.
config::ModelConfig wide_olmo2() {
  config::ModelConfig model = wide_llama();
  model.family = config::Family::olmo2;
  model.norm_eps = 1e-3;
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

std::vector<Documents> two_batches() { return {tiny_documents(10, 1), tiny_documents(8, 2)}; }

using Model = config::ModelConfig (*)();

const TinyRun& on_one_rank(Model made) {
  static std::map<Model, TinyRun> known;
  const auto [it, is_new] = known.try_emplace(made);
  if (is_new)
    it->second = run_tiny(plans_of(made(), {"1,1,1"}, 1), two_batches(), {.rope_scaling = made().rope_scaling});
  return it->second;
}

void expect_like_one_rank(Model made, const std::vector<std::string>& specs, int ranks,
                          const std::vector<i64>& bounds = {kLongest}) {
  const TinyRun& one = on_one_rank(made);
  const TinyRun run =
      run_tiny(plans_of(made(), specs, ranks), two_batches(), {.bounds = bounds, .rope_scaling = made().rope_scaling});
  ASSERT_THAT(run.ends, Each(IsEmpty()));
  for (size_t s = 0; s < run.steps.size(); ++s) {
    EXPECT_NEAR(run.steps[s].loss, one.steps[s].loss, 1e-10 * one.steps[s].loss);
    EXPECT_NEAR(run.steps[s].norm, one.steps[s].norm, 1e-10 * one.steps[s].norm);
  }
  for (size_t p = 0; p < run.master.size(); ++p)
    EXPECT_LT(gap(run.master[p], one.master[p]), 1e-10) << "parameter " << p;
}

class StageAxes : public testing::TestWithParam<const char*> {};

TEST_P(StageAxes, EqualOneRank) {
  const config::StrategyText text = config::read_strategy_text(GetParam());
  const int ranks = static_cast<int>(config::ranks_of(text.groups));
  // Together these have all that wide_llama has: rotary tables of fixed frequencies, and a head of its own.
  expect_like_one_rank(tied_llama_with_biases, {GetParam()}, ranks);
  expect_like_one_rank(dynamic_llama, {GetParam()}, ranks);
  if (std::ranges::any_of(text.groups, [](const config::Degrees& group) { return group.inner > 1; }))
    expect_like_one_rank(wide_olmo2, {GetParam()}, ranks);
  if (std::ranges::all_of(text.groups, [](const config::Degrees& group) {
        return group.tp * group.ulysses <= 4 && group.ring == 1;  // its attention stores its scores
      }))
    expect_like_one_rank(small_gpt2, {GetParam()}, ranks);
}

// tp=2,ulysses=4: 4 key/value heads are cut by outer and half of ulysses, and copied over the other half.
INSTANTIATE_TEST_SUITE_P(Ulysses, StageAxes,
                         testing::Values("ulysses=2", "ulysses=4", "tp=2,ulysses=4", "ulysses=8", "tp=4,ulysses=2",
                                         "ulysses=3", "tp=2,ulysses=2,sequence_parallel=false",
                                         "tp=2,ulysses=4,sequence_parallel=false", "dp=2,ulysses=2,zero=0",
                                         "dp=2,tp=2,ulysses=2", "pp=2,ulysses=2,recompute=full",
                                         "tp=2,ulysses=2,recompute=selective", "pp=2,ulysses=2,schedule=zero-bubble",
                                         "tp=2,pp=2,ulysses=2,schedule=zb-v,recompute=selective",
                                         "tp=2,pp=2,ulysses=2,schedule=zb-v,recompute=none",
                                         "pp=2,ulysses=2,schedule=interleaved",
                                         "ulysses=4,schedule=zero-bubble,recompute=full"),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

// inner=3: neither hidden sizes nor heads divide evenly. tp=8: 4 key/value heads are cut by outer, and by a
// factor of inner where outer is 2.
INSTANTIATE_TEST_SUITE_P(Inner, StageAxes,
                         testing::Values("tp=2,inner=2", "tp=4,inner=2", "tp=4,inner=4", "tp=3,inner=3", "tp=8,inner=2",
                                         "tp=8,inner=4", "tp=2,inner=2,sequence_parallel=false",
                                         "tp=4,inner=2,sequence_parallel=false", "tp=3,inner=3,sequence_parallel=false",
                                         "tp=8,inner=4,sequence_parallel=false", "tp=2,ulysses=2,inner=2",
                                         "tp=2,ulysses=2,inner=2,sequence_parallel=false", "tp=4,ulysses=2,inner=2",
                                         "dp=2,tp=2,inner=2,zero=0",
                                         "dp=2,tp=4,inner=2,sequence_parallel=false,recompute=selective",
                                         "dp=2,tp=2,pp=2,inner=2,inside=pipeline", "tp=2,pp=2,inner=2,recompute=full",
                                         "tp=2,pp=2,inner=2,schedule=gpipe,sequence_parallel=false,recompute=full",
                                         "tp=2,pp=2,inner=2,schedule=zero-bubble,sequence_parallel=false",
                                         "tp=2,pp=2,inner=2,schedule=zero-bubble,activation_cap=3",
                                         "tp=4,pp=2,inner=2,schedule=zb-v,recompute=selective",
                                         "tp=4,pp=2,inner=2,schedule=zb-v,recompute=none",
                                         "tp=2,pp=2,inner=2,schedule=zb-v,sequence_parallel=false",
                                         "tp=2,pp=2,ulysses=2,inner=2,schedule=interleaved"),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

// ring=3: chunks of unequal length. Of 24 tokens in a micro-batch, many documents have fewer tokens than chunks.
INSTANTIATE_TEST_SUITE_P(
    Ring, StageAxes,
    testing::Values("ring=2", "ring=3", "ring=4", "ring=2,ring_degree=uniform", "ring=4,ring_degree=uniform",
                    "ring=3,packing=stream", "ring=2,ulysses=2", "ring=2,ulysses=2,packing=stream", "tp=2,ring=2",
                    "tp=2,ring=2,sequence_parallel=false", "tp=2,ring=2,inner=2", "tp=8,ring=2", "dp=2,ring=2",
                    "dp=2,ring=2,zero=0", "ring=2,depth=2", "pp=2,ring=2", "pp=2,ring=2,inside=pipeline,recompute=full",
                    "pp=2,ring=2,schedule=zero-bubble,recompute=selective", "tp=2,pp=2,ring=2,schedule=zb-v",
                    "pp=2,ring=2,schedule=interleaved", "tp=2,ring=2,ulysses=2", "dp=2,tp=2,ring=2,recompute=selective",
                    "ring=4,zero=2", "ring=2,zero=3", "dp=2,ring=2,zero=3", "dp=2,ring=2,depth=2,zero=2",
                    "pp=2,ring=3,zero=2", "ring=3 + dp=2,tp=2"),
    [](const auto& p) { return "Case" + std::to_string(p.index); });

INSTANTIATE_TEST_SUITE_P(
    RingInSteps, StageAxes,
    testing::Values("ring=2,exchange=ring", "ring=3,exchange=ring", "ring=4,exchange=ring", "ring=6,exchange=ring",
                    "ring=4,packing=stream,exchange=ring", "ring=3,packing=stream,exchange=ring",
                    "ring=2,ulysses=2,exchange=ring", "tp=2,ring=2,exchange=ring",
                    "tp=2,ring=2,sequence_parallel=false,exchange=ring", "tp=2,ring=2,inner=2,exchange=ring",
                    "tp=8,ring=2,exchange=ring", "dp=2,ring=2,zero=0,exchange=ring", "ring=2,depth=2,exchange=ring",
                    "pp=2,ring=2,inside=pipeline,recompute=full,exchange=ring",
                    "pp=2,ring=2,schedule=zero-bubble,recompute=selective,exchange=ring",
                    "tp=2,pp=2,ring=2,schedule=zb-v,exchange=ring", "tp=2,ring=2,ulysses=2,exchange=ring",
                    "ring=4,ring_degree=uniform,zero=2,exchange=ring", "dp=2,ring=2,zero=3,exchange=ring",
                    "ring=3,exchange=ring + dp=2,tp=2", "tp=2,ring=4,packing=stream,exchange=ring"),
    [](const auto& p) { return "Case" + std::to_string(p.index); });

INSTANTIATE_TEST_SUITE_P(
    Paired, StageAxes,
    testing::Values("tp=2,paired=true", "tp=4,inner=2,sequence_parallel=false,paired=true", "ulysses=4,paired=true",
                    "tp=2,ulysses=2,recompute=full,paired=true", "tp=2,pp=2,recompute=selective,paired=true",
                    "tp=2,pp=2,schedule=interleaved,paired=true", "tp=2,pp=2,ulysses=2,schedule=zb-v,paired=true",
                    "tp=2,ring=2,exchange=ring,paired=true", "dp=2,tp=2,zero=2,paired=true",
                    "dp=2,tp=2,zero=3,paired=true", "tp=2,depth=2,every=2,paired=true",
                    "tp=2,paired=true + dp=2,ulysses=2", "tp=2,inner=2,schedule=zb-v,recompute=none,paired=true",
                    "tp=2,ring=2,inner=2,schedule=zb-v,recompute=full,paired=true",
                    "tp=4,pp=2,inner=2,schedule=zero-bubble,paired=true"),
    [](const auto& p) { return "Case" + std::to_string(p.index); });

INSTANTIATE_TEST_SUITE_P(Depth, StageAxes,
                         testing::Values("depth=4", "tp=2,depth=2,inner=2", "tp=2,ulysses=2,depth=2",
                                         "tp=4,depth=2,inner=2,sequence_parallel=false,recompute=selective",
                                         "dp=2,tp=2,depth=2,inner=2,sequence_parallel=false",
                                         "dp=2,pp=2,depth=2,inside=pipeline,recompute=full",
                                         "tp=2,pp=2,depth=2,inner=2,schedule=zb-v",
                                         "pp=2,depth=3,schedule=interleaved"),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

INSTANTIATE_TEST_SUITE_P(Groups, StageAxes,
                         testing::Values("1,2,1 + 1,1,2", "dp=2,zero=0 + 1,2,1 + 1,1,1",
                                         "tp=2,inner=2,recompute=full + dp=2,pp=2,inside=pipeline",
                                         "pp=2,schedule=zb-v + ulysses=2",
                                         "tp=4,inner=2,zero=3 + dp=2,ulysses=2 + depth=2",
                                         "depth=2,zero=2,schedule=zero-bubble + tp=2,pp=2"),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

TEST(Groups, SwitchInsideAStepToAndFromOtherGroups) {
  expect_like_one_rank(wide_llama, {"1,4,1 + 1,1,2", "2,1,1 + tp=2,pp=2"}, 6, {24, 12});
  expect_like_one_rank(wide_llama, {"tp=2,ulysses=2 + 1,1,2", "1,2,2 + dp=2", "6,1,1"}, 6, {24, 14, 8});
}

TEST(Inner, SwitchesInsideAStepToAndFromOtherMeshes) {
  expect_like_one_rank(wide_llama, {"tp=4,inner=2", "4,1,1"}, 4, {24, 12});
  expect_like_one_rank(wide_llama, {"1,4,1", "tp=4,inner=4", "dp=2,tp=2,inner=2"}, 4, {24, 14, 8});
  expect_like_one_rank(wide_llama, {"tp=2,pp=2,inner=2,schedule=zb-v", "dp=2,ulysses=2"}, 4, {24, 12});
  expect_like_one_rank(wide_llama, {"tp=4,inner=2,sequence_parallel=false", "tp=4,inner=2"}, 4, {24, 12});
}

// Embedding, two products with biases between which nothing is brought into a role's layout, and the head.
ir::Graph chain() {
  using layout::DimRole;
  ir::Graph graph(kFp64);
  graph.set_unit(0);
  const int table =
      models::add_weight(graph, {.name = "table.", .rows = 40, .columns = 16, .row_role = DimRole::vocabulary});
  const int x = graph.call(std::make_shared<ir::Embedding>(), {graph.feed(ir::Feed::ids), table}, "x")[0];
  graph.set_role(x, layout::Role::residual);
  graph.set_unit(1);
  const auto product = [&](int in, const models::Product& of) {
    const int weight = models::add_weight(graph, of), bias = models::add_bias(graph, of);
    return graph.call(std::make_shared<ir::Linear>(1, true), {in, weight, bias}, of.name)[0];
  };
  const int y = product(x, {.name = "normal.",
                            .unit = 1,
                            .rows = 24,
                            .columns = 16,
                            .row_role = DimRole::ffn,
                            .column_role = DimRole::hidden}),
            z = product(y, {.name = "transposed.",
                            .unit = 1,
                            .rows = 16,
                            .columns = 24,
                            .row_role = DimRole::hidden,
                            .column_role = DimRole::ffn});
  graph.set_role(z, layout::Role::residual);
  graph.set_unit(2);
  models::finish(graph, z,
                 models::add_weight(
                     graph, {.name = "head.", .unit = 2, .rows = 40, .columns = 16, .row_role = DimRole::vocabulary}),
                 models::Output::loss);
  ir::differentiate(graph);
  return graph;
}

// Source: arXiv 2502.08145, whose layers alternate between normal and transposed weights, on rows (outer), columns
// (inner) and depth.
TEST(Depth, AndInnerCutAChainOfTwoProductsThatEqualsOneRank) {
  const auto run = [](const std::string& spec, int ranks) {
    return run_tiny(compiler::Plans(chain(), {config::strategy_from_spec(spec, ranks, 1)}, 0,
                                    cluster::uniform(1, ranks), switching::Planner::relay),
                    {tiny_documents(13, 1)});
  };
  const TinyRun one = run("1,1,1", 1);
  for (const char* sequence_parallel : {"true", "false"})
    for (const int ranks : {2, 4, 8})
      for (int depth = 1; depth <= ranks; depth *= 2)
        for (int inner = 1; inner <= ranks / depth; inner *= 2) {
          const std::string spec = fmt::format("tp={},depth={},inner={},sequence_parallel={}", ranks / depth, depth,
                                               inner, sequence_parallel);
          const TinyRun made = run(spec, ranks);
          ASSERT_THAT(made.ends, Each(IsEmpty())) << spec;
          EXPECT_NEAR(made.steps[0].loss, one.steps[0].loss, 1e-12) << spec;
          EXPECT_NEAR(made.steps[0].norm, one.steps[0].norm, 1e-12) << spec;
          for (size_t p = 0; p < one.master.size(); ++p)
            EXPECT_LT(gap(made.master[p], one.master[p]), 1e-12) << spec << ", parameter " << p;
        }
}

TEST(Ring, SwitchesInsideAStepToAndFromOtherMeshes) {
  expect_like_one_rank(wide_llama, {"ring=4", "4,1,1"}, 4, {24, 12});
  expect_like_one_rank(wide_llama, {"dp=2,ring=2", "ring=2,ulysses=2", "1,4,1"}, 4, {24, 14, 8});
  expect_like_one_rank(wide_llama, {"ring=4,exchange=ring", "ring=4", "dp=2,ring=2,exchange=ring"}, 4, {24, 14, 8});
  expect_like_one_rank(wide_llama, {"pp=2,ring=2,schedule=zb-v", "ring=4,zero=3"}, 4, {24, 12});
}

TEST(Ulysses, SwitchesInsideAStepToAndFromOtherMeshes) {
  expect_like_one_rank(wide_llama, {"tp=2,ulysses=2", "4,1,1"}, 4, {24, 12});
  expect_like_one_rank(wide_llama, {"1,4,1", "ulysses=4", "dp=2,ulysses=2"}, 4, {24, 14, 8});
  expect_like_one_rank(wide_llama, {"pp=2,ulysses=2,schedule=zb-v", "dp=2,tp=2"}, 4, {24, 12});
}

}  // namespace
}  // namespace switchyard::runtime
