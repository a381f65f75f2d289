#include "compiler/placement.hpp"

#include <gtest/gtest.h>

#include "compiler/compile.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

ParamMaps maps_of(const ir::Graph& graph, const config::Strategy& strategy) {
  return param_maps(graph, strategy, compile(graph, strategy));
}

TEST(ParamMaps, cover_every_element_of_every_partial_under_any_strategy) {
  std::vector<config::ModelConfig> models = {small_llama(), small_gpt2(), small_llama()};
  models[2].tied_embeddings = true;
  for (const config::ModelConfig& model : models) {
    const ir::Graph graph = training_graph(model);
    for (const char* spec : {"1,1,1", "4,1,1", "1,2,2", "2,2,1", "2,1,2", "2,2,2"}) {
      SCOPED_TRACE(spec);
      const ParamMaps maps = maps_of(graph, config::strategy_from_spec(spec, 8, model.layers));
      ASSERT_EQ(maps.used.size(), graph.params().size());
      for (size_t p = 0; p < maps.used.size(); ++p) {
        layout::validate(maps.used[p]);
        layout::validate(maps.grad[p]);
        EXPECT_EQ(maps.used[p].partials, 1);
      }
      for (const layout::ShardMap& owners : owner_maps(maps)) layout::validate(owners, true);
    }
  }
}

// q_proj of layer 0, 64 by 64, on 2 replicas of 2 tensor parallel ranks, and its norm.
TEST(ParamMaps, cut_rows_of_gradients_and_of_what_is_stored_as_zero_says) {
  const ir::Graph graph = training_graph(small_llama());
  const auto q = static_cast<size_t>(param_index(graph, "model.layers.0.self_attn.q_proj.weight")),
             norm = static_cast<size_t>(param_index(graph, "model.layers.0.input_layernorm.weight"));
  for (const int zero : {0, 1, 2, 3}) {
    const ParamMaps maps = maps_of(graph, config::strategy_from_spec(fmt::format("dp=2,tp=2,zero={}", zero), 4, 2));
    const layout::Box all{2, {0, 0}, {32, 64}}, rows{2, {0, 0}, {16, 64}};
    EXPECT_EQ(maps.used[q].shards[0], (layout::Shard{0, 0, all}));
    EXPECT_EQ(maps.made[q].shards[0], (layout::Shard{0, 0, all}));
    EXPECT_EQ(maps.made[q].partials, 2);
    EXPECT_EQ(maps.stored[q].shards[0].box, zero == 3 ? rows : all);
    EXPECT_EQ(maps.grad[q].shards[0].box, zero >= 2 ? rows : all);
    EXPECT_EQ(maps.grad[q].partials, zero >= 2 ? 1 : 2);
    EXPECT_EQ(maps.made[norm].partials, 4);
    EXPECT_EQ(maps.grad[norm].partials, zero >= 2 ? 2 : 4) << "those of tensor parallel ranks stay apart";
    for (const auto* all_maps : {&maps.stored, &maps.made, &maps.grad})
      for (const layout::ShardMap& map : *all_maps) layout::validate(map);
    for (const layout::ShardMap& owners : owner_maps(maps)) layout::validate(owners, true);
    if (zero == 3) {
      EXPECT_EQ(owner_maps(maps)[q].shards, maps.stored[q].shards) << "home is what is stored";
    }
  }
}

// q_proj of layer 0, 64 by 64: depth cuts rows of each tensor parallel part, ZeRO cuts what is left.
TEST(ParamMaps, cut_rows_by_depth_and_inside_these_as_zero_says) {
  const ir::Graph graph = training_graph(small_llama());
  const auto q = static_cast<size_t>(param_index(graph, "model.layers.0.self_attn.q_proj.weight"));
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    const ParamMaps maps =
        maps_of(graph, config::strategy_from_spec(fmt::format("dp=2,tp=2,depth=2,zero={}", zero), 8, 2));
    // Rank 7 has the second place on data, depth and outer.
    const layout::Box all{2, {32, 0}, {64, 64}}, half{2, {48, 0}, {64, 64}}, quarter{2, {56, 0}, {64, 64}};
    EXPECT_EQ(maps.used[q].shards[7].box, all);
    EXPECT_EQ(maps.made[q].shards[7].box, all);
    EXPECT_EQ(maps.made[q].partials, 4);
    EXPECT_EQ(maps.stored[q].shards[7].box, zero == 3 ? quarter : half);
    EXPECT_EQ(maps.grad[q].shards[7].box, zero >= 2 ? quarter : half);
    EXPECT_EQ(maps.grad[q].partials, zero >= 2 ? 1 : 2) << "sums over depth";
    EXPECT_EQ(maps.stored[q].shards[3].box.lo[0], 48) << "depth cuts outside of data";
    for (const auto* all_maps : {&maps.stored, &maps.made, &maps.grad})
      for (const layout::ShardMap& map : *all_maps) layout::validate(map);
    EXPECT_EQ(home_maps(maps, 0), maps.stored);
    for (const layout::ShardMap& owners : owner_maps(maps)) layout::validate(owners, true);
  }
}

TEST(ParamMaps, hold_copies_and_partials_of_unequal_groups) {
  config::Strategy strategy = stage_strategy("uneven");
  strategy.groups = {{{{{0, 1}, tensor_mesh(2), 0, 1}, {{2}, {}, 1, 2}}}, {{{{3, 4}, tensor_mesh(1, 2), 0, 2}}}};
  const ir::Graph graph = training_graph(small_llama());
  const ParamMaps maps = maps_of(graph, strategy);
  // k_proj of layer 0: halves on 0 and 1, copies on 3 and 4; the gradients of three replicas are summed.
  const layout::ShardMap &used = maps.used[3], &grad = maps.grad[3];
  EXPECT_EQ(graph.param(3).name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(used.shards.size(), 4u);
  EXPECT_EQ(used.shards[1], (layout::Shard{1, 0, {2, {16, 0}, {32, 64}}}));
  EXPECT_EQ(grad.partials, 3);
  layout::validate(grad);
}

TEST(ParamMaps, count_a_partial_per_data_rank_partial_axis_and_use) {
  config::ModelConfig model = small_llama();
  model.tied_embeddings = true;
  const ir::Graph graph = training_graph(model);
  const auto partials = [&](const char* spec, size_t param) {
    return maps_of(graph, config::strategy_from_spec(spec, 8, 2)).grad[param].partials;
  };
  EXPECT_EQ(partials("1,1,1", 0), 1);
  EXPECT_EQ(partials("1,1,2", 0), 2);  // embedding and head
  EXPECT_EQ(partials("2,1,2", 0), 4);
  EXPECT_EQ(partials("2,2,2", 0), 4);  // cut by tp in both uses
  EXPECT_EQ(graph.param(1).name, "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(partials("1,2,1", 1), 2);  // tokens are cut by tp
  EXPECT_EQ(partials("2,2,1", 1), 4);
}

TEST(ParamMaps, refuse_a_strategy_that_leaves_a_parameter_out) {
  const ir::Graph graph = training_graph(small_llama());
  EXPECT_EQ(message_of<InternalError>([&] { param_maps(graph, stage_strategy("none"), {}); }),
            "strategy \"none\" uses model.embed_tokens.weight nowhere");
}

TEST(HomeMaps, with_zero_0_are_all_copies) {
  const ir::Graph graph = training_graph(small_llama());
  const ParamMaps maps = maps_of(graph, config::strategy_from_spec("2,2,1", 4, 2));
  EXPECT_EQ(home_maps(maps, 0), maps.used);
  EXPECT_EQ(home_maps(maps, 1), owner_maps(maps));
}

TEST(OwnerMaps, distribute_copies_evenly) {
  const ir::Graph graph = training_graph(small_llama());
  const std::vector<layout::ShardMap> home = owner_maps(maps_of(graph, config::strategy_from_spec("4,1,1", 4, 2)));
  std::vector<i64> held(4);
  for (const layout::ShardMap& map : home)
    for (const layout::Shard& shard : map.shards) held[static_cast<size_t>(shard.rank)] += shard.box.elements();
  EXPECT_EQ(held, (std::vector<i64>{26320, 26320, 26320, 26320}));
}

TEST(StageMesh, puts_the_axes_of_replicas_outside_the_replica) {
  const config::Stage stage{{4, 5, 6, 7}, tensor_mesh(2, 2), 0, 2};
  const layout::Mesh mesh = stage_mesh(stage, {{{"outer", 2}}, {0, 1}});
  EXPECT_EQ(mesh.axes, (std::vector<layout::Axis>{{"data", 2}, {"depth", 1}, {"ring", 1}, {"outer", 2}}));
  EXPECT_EQ(mesh.ranks, (std::vector<int>{4, 5, 6, 7}));
}

TEST(UnitMaps, group_parameters_by_layer) {
  const ir::Graph graph = training_graph(small_llama());
  const std::vector<switching::UnitMaps> units = unit_maps(graph);
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(units[0].tensors, std::vector<int>{0});
  EXPECT_EQ(units[1].tensors, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(units[3].tensors, (std::vector<int>{19, 20}));
}

}  // namespace
}  // namespace switchyard::compiler
