#include "compiler/compile.hpp"

#include <gtest/gtest.h>

#include "compiler/assemble.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

TEST(Compile, gives_the_embedding_to_the_first_stage_and_the_head_to_the_last) {
  config::ModelConfig model = small_llama();
  model.layers = 5;
  const std::vector<ir::GroupCode> groups =
      compile(training_graph(model), config::strategy_from_spec("2,1,3", 6, model.layers));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].replicas, 2);
  std::vector<std::pair<int, int>> units;
  for (const ir::StageCode& stage : groups[0].stages) units.emplace_back(stage.first_unit, stage.end_unit);
  EXPECT_EQ(units, (std::vector<std::pair<int, int>>{{0, 3}, {3, 5}, {5, 7}}));  // 2, 2, 1 layers
}

TEST(Compile, uses_every_parameter_once_over_the_stages) {
  const ir::Graph graph = training_graph(small_llama());
  for (const char* spec : {"1,1,1", "1,2,2", "1,2,1"}) {
    std::vector<int> uses(graph.params().size());
    const std::vector<ir::GroupCode> groups = compile(graph, config::strategy_from_spec(spec, 4, 2));
    for (const ir::StageCode& stage : groups[0].stages)
      for (const ir::ParamUse& use : stage.params) ++uses[static_cast<size_t>(use.param)];
    EXPECT_EQ(uses, std::vector<int>(uses.size(), 1)) << spec;
  }
}

TEST(Compile, uses_a_tied_weight_on_the_first_and_the_last_stage) {
  config::ModelConfig model = small_llama();
  model.tied_embeddings = true;
  const auto stages = compile(training_graph(model), config::strategy_from_spec("1,1,2", 2, 2))[0].stages;
  EXPECT_EQ(stages[0].params[0].param, 0);
  EXPECT_EQ(stages[1].params[0].param, 0);
}

TEST(Compile, serves_groups_of_unequal_stages) {
  config::Strategy strategy = stage_strategy("uneven");
  strategy.groups = {{{{{0, 1}, tensor_mesh(2), 0, 1}, {{2}, {}, 1, 2}}}, {{{{3, 4}, tensor_mesh(1, 2), 0, 2}}}};
  const std::vector<ir::GroupCode> groups = compile(training_graph(small_llama()), strategy);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].stages[0].replica.size(), 2);
  EXPECT_EQ(groups[0].stages[1].replica.size(), 1);
  EXPECT_EQ(groups[1].stages[0].end_unit, 4);
}

// Which stages have code for both kinds of gradients at once beside B and W; schedules don't depend on run.overlap.
TEST(Compile, joins_split_gradients_where_collectives_run_under_products_for_weights) {
  const ir::Graph graph = training_graph(small_llama());
  for (const bool overlap : {true, false})
    for (const auto& [spec, joins] :
         {std::pair("tp=2,pp=2,schedule=zero-bubble", true), std::pair("ulysses=2,pp=2,schedule=zero-bubble", true),
          std::pair("tp=2,pp=2", false), std::pair("pp=2,schedule=zero-bubble", false),
          std::pair("tp=2,pp=2,schedule=zero-bubble,paired=true", false),
          std::pair("dp=2,tp=2,pp=2,schedule=zero-bubble,zero=2", false),
          std::pair("tp=2,pp=2,depth=2,schedule=zero-bubble", false)}) {
      const std::vector<ir::GroupCode> groups =
          compile(graph, config::strategy_from_spec(spec, 8, 2), {}, {.overlap = overlap});
      ASSERT_EQ(groups[0].stages.size(), 2) << spec;
      for (const ir::StageCode& stage : groups[0].stages)
        EXPECT_EQ(stage.joins_gradients(), joins) << spec << ", overlap " << overlap;
    }
  const auto joined = [&](bool overlap) {
    const std::vector<ir::GroupCode> groups =
        compile(graph, config::strategy_from_spec("tp=2,pp=2,schedule=zero-bubble", 4, 2), {}, {.overlap = overlap});
    return cost_of(groups[0].stages[0]);
  };
  const StageCost with = joined(true), without = joined(false);
  EXPECT_EQ(with.of(Pass::BW).flops_per_token, with.joined.flops_per_token);
  EXPECT_NEAR(with.joined.flops_per_token, with.backward.flops_per_token + with.weight.flops_per_token,
              0.01 * with.joined.flops_per_token);
  EXPECT_LT(with.joined.bytes_waited_per_token,
            0.8 * (with.backward.bytes_waited_per_token + with.weight.bytes_waited_per_token));
  for (const auto segment : {&StageCost::forward, &StageCost::backward, &StageCost::weight, &StageCost::joined})
    EXPECT_EQ((with.*segment).bytes_waited_per_token, (without.*segment).bytes_waited_per_token);
}

TEST(Compile, lets_replicas_go_in_step_that_share_what_is_cut_by_rows) {
  const ir::Graph graph = training_graph(small_llama());
  const auto group_of = [&](const char* spec) { return compile(graph, config::strategy_from_spec(spec, 8, 2))[0]; };
  const auto in_step = [&](const char* spec) { return group_of(spec).in_step; };
  EXPECT_EQ(in_step("dp=4"), 1);
  EXPECT_EQ(in_step("dp=4,zero=2"), 4);
  EXPECT_EQ(in_step("dp=2,depth=2"), 2) << "those of a place on data";
  EXPECT_EQ(in_step("dp=2,depth=2,pp=2,zero=2"), 4);
  EXPECT_EQ(in_step("ulysses=4,zero=3"), 1);
  EXPECT_EQ(group_of("dp=2,depth=2").replicas, 4);
  const ir::StageCode two = group_of("dp=2,zero=2").stages[0], depth = group_of("dp=2,depth=2").stages[0];
  EXPECT_FALSE(two.gathers());
  EXPECT_TRUE(two.reduces());
  EXPECT_TRUE(depth.gathers());
  EXPECT_TRUE(depth.reduces());
}

}  // namespace
}  // namespace switchyard::compiler
