#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "compiler/assemble.hpp"
#include "small_models.hpp"
#include "switching/bounds.hpp"

namespace switchyard::compiler {
namespace {

TEST(Plans, number_replicas_by_group_then_data_and_place_them) {
  config::Strategy uneven = stage_strategy("uneven");
  uneven.groups = {{{{{0, 1}, tensor_mesh(2), 0, 1}, {{2}, {}, 1, 2}}}, {{{{3, 4}, tensor_mesh(1, 2), 0, 2}}}};
  const Plans plans(training_graph(small_llama()), {uneven}, 0, cluster::uniform(1, 5), switching::Planner::relay);
  const CompiledStrategy& strategy = plans.strategies()[0];
  ASSERT_EQ(strategy.replicas.size(), 3u);
  EXPECT_EQ(strategy.replica_ranks(0, 0), (std::vector<int>{0, 1}));
  EXPECT_EQ(strategy.replica_ranks(0, 1), std::vector<int>{2});
  EXPECT_EQ(strategy.replica_ranks(2, 0), std::vector<int>{4});
  EXPECT_EQ(strategy.multiple, 2);
}

TEST(Plans, cut_no_parameter_that_the_model_lacks) {
  config::Strategy strategy = config::strategy_from_spec("1,2,1", 2, 2);
  strategy.splits = {{"model.layers.*.mlp.up_proj.weight", {}}, {"nope.*", {}}};
  const auto planned = [&] {
    Plans(training_graph(small_llama()), {strategy}, 0, cluster::uniform(1, 2), switching::Planner::relay);
  };
  EXPECT_THAT(message_of(planned),
              testing::HasSubstr("splits[1].parameter = \"nope.*\" is no parameter of the model."));
}

TEST(Plans, pad_to_what_all_stages_divide) {
  config::Strategy strategy = stage_strategy("mixed");
  strategy.groups = {{{{{0, 1}, tensor_mesh(2), 0, 1}, {{2, 3, 4}, tensor_mesh(3), 1, 2}}}};
  config::ModelConfig model = small_gpt2();
  const Plans plans(training_graph(model), {strategy}, 0, cluster::uniform(1, 5), switching::Planner::relay);
  EXPECT_EQ(plans.strategies()[0].multiple, 6);
}

TEST(Plans, cost_more_for_the_backward_segment_and_less_with_more_ranks) {
  const Plans plans = worked_plans();
  const StageCost& cost = plans.strategies()[1].cost[0][0];
  const SegmentCost& forward = cost.forward;
  EXPECT_EQ(cost.compute, DType::bf16);
  EXPECT_EQ(cost.weight.flops_per_token, 0) << "with the backward segment";
  EXPECT_GT(cost.backward.flops_per_token, 1.5 * forward.flops_per_token);
  // Products: two flops a weight, the embedding not counted; norms and sums add a little. The head runs with the
  // gradients.
  EXPECT_NEAR(forward.flops_per_token, 2 * 2 * 46080, 0.1 * 2 * 2 * 46080);
  EXPECT_EQ(forward.flops_per_pair, 2 * 4 * 64);
  EXPECT_EQ(plans.strategies()[0].cost[0][0].forward.flops_per_pair, 4 * 64 / 2);  // one of two layers, half its heads
}

TEST(Plans, plan_each_pair_of_strategies_once) {
  const Plans plans = worked_plans();
  EXPECT_EQ(&plans.moves(0, 1), &plans.moves(0, 1));
  EXPECT_NE(&plans.moves(0, 1), &plans.moves(-1, 1));
}

TEST(Plans, of_a_model_share_its_strategies) {
  const auto model = std::make_shared<const CompiledModel>(training_graph(small_llama()), cluster::uniform(2, 2));
  const config::Strategy deep = config::strategy_from_spec("1,2,2", 4, 2),
                         wide = config::strategy_from_spec("4,1,1", 4, 2);
  const Plans one(model, {deep, wide}, 0, switching::Planner::relay),
      other(model, {wide, deep}, 0, switching::Planner::relay);
  EXPECT_EQ(&one.strategies()[0], &other.strategies()[1]);
  EXPECT_EQ(&one.strategies()[1], &other.strategies()[0]);
  EXPECT_NE(one.home(), other.home()) << "home is the plan's own";
  config::Strategy full = wide;
  full.recompute = config::Recompute::full;
  EXPECT_NE(model->compiled(full), model->compiled(wide));
}

TEST(Plans, move_nothing_to_the_same_strategy) {
  const Plans plans = worked_plans();
  for (const int s : {0, 1}) {
    const switching::Traffic traffic = switching::traffic(plans.moves(s, s), plans.cluster(), 2);
    EXPECT_EQ(traffic, switching::Traffic{});
  }
}

TEST(Plans, without_a_backward_pass_have_nothing_that_gradients_need) {
  struct Counts {
    int reductions = 0, broadcasts = 0, of_runs = 0, gathers = 0;  // rounds
    bool operator==(const Counts&) const = default;
  };
  const auto counts = [](bool trained) {
    ir::Graph graph = models::build(small_llama(), precision_from("bf16"), models::Output::loss);
    if (trained) ir::differentiate(graph);
    const Plans plans(
        std::move(graph),
        {config::strategy_from_spec("dp=4,zero=0", 4, 2), config::strategy_from_spec("dp=4,zero=3", 4, 2)}, 0,
        cluster::uniform(2, 2), switching::Planner::relay);
    Counts made;
    for (const int s : {0, 1})
      for (const switching::UnitMoves& unit : plans.reduction(s).units)
        made.reductions += static_cast<int>(unit.moves.rounds.size());
    for (const switching::UnitMoves& unit : plans.broadcast().units)
      made.broadcasts += static_cast<int>(unit.moves.rounds.size());
    for (const RunTransfers& unit : plans.of_runs(1)[0][0][0]) {
      made.of_runs += static_cast<int>(unit.reduce.rounds.size());
      made.gathers += static_cast<int>(unit.gather.rounds.size());
    }
    return made;
  };
  const Counts trained = counts(true), evaluated = counts(false);
  EXPECT_TRUE(trained.reductions > 0 && trained.broadcasts > 0 && trained.of_runs > 0 && trained.gathers > 0);
  EXPECT_EQ(evaluated, (Counts{.gathers = trained.gathers}));
}

TEST(Plans, take_home_from_the_anchor) {
  const ir::Graph graph = training_graph(small_llama());
  const std::vector<config::Strategy> strategies = {config::strategy_from_spec("1,2,2", 4, 2),
                                                    config::strategy_from_spec("4,1,1", 4, 2)};
  for (const int anchor : {0, 1}) {
    const Plans plans(graph, strategies, anchor, cluster::uniform(2, 2), switching::Planner::relay);
    EXPECT_EQ(plans.home(), home_maps(plans.strategies()[static_cast<size_t>(anchor)].maps, 1));
  }
  EXPECT_EQ(message_of<InternalError>(
                [&] { Plans(graph, strategies, 2, cluster::uniform(2, 2), switching::Planner::relay); }),
            "no strategy 2 to anchor home");
}

}  // namespace
}  // namespace switchyard::compiler
