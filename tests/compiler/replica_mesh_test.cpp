#include <gtest/gtest.h>

#include "compiler/compile.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

// 16 query heads, 4 key/value heads.
ir::Graph grouped_heads() {
  config::ModelConfig model = small_llama();
  model.heads = 16;
  model.kv_heads = 4;
  model.head_dim = 4;
  return models::build(model, precision_from("bf16"), models::Output::loss);
}

// The mesh of a stage with all units.
layout::Mesh whole_mesh(const ir::Graph& graph, const config::Strategy& strategy, int tp) {
  return replica_mesh(graph, strategy, tensor_mesh(tp), 0, graph.units());
}

const std::string kQ = "model.layers.0.self_attn.q_proj.weight", kK = "model.layers.0.self_attn.k_proj.weight";

std::vector<int> sizes_of(const layout::Mesh& mesh) {
  std::vector<int> sizes;
  for (const layout::Axis& axis : mesh.axes) sizes.push_back(axis.size);
  return sizes;
}

TEST(ReplicaMesh, is_one_axis_where_every_parameter_has_the_same_cut) {
  const ir::Graph graph = grouped_heads();
  const layout::Mesh mesh = whole_mesh(graph, {}, 4);
  EXPECT_EQ(mesh.axes, (std::vector<layout::Axis>{{"outer", 4}}));
  EXPECT_EQ(mesh.ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(whole_mesh(graph, {}, 1).axes.empty());
}

TEST(ReplicaMesh, has_a_factor_for_the_key_heads_where_there_are_fewer_than_ranks) {
  const ir::Graph graph = grouped_heads();
  const layout::Mesh mesh = whole_mesh(graph, {}, 8);
  EXPECT_EQ(mesh.axes, (std::vector<layout::Axis>{{"outer/0", 4}, {"outer/1", 2}}));
  EXPECT_EQ(param_layout(graph, param_index(graph, kK), {}, mesh).split, (std::vector<std::vector<int>>{{0}, {}}));
  EXPECT_EQ(param_layout(graph, param_index(graph, kQ), {}, mesh).split, (std::vector<std::vector<int>>{{0, 1}, {}}));
}

TEST(ReplicaMesh, refuses_axes_that_do_not_divide_the_key_heads) {
  const config::Strategy strategy = stage_strategy("1,6,1");
  EXPECT_EQ(message_of([&] { whole_mesh(grouped_heads(), strategy, 6); }),
            "strategy \"1,6,1\": 4 heads can't be divided among the ranks of a stage with the mesh (outer=6).");
}

TEST(ReplicaMesh, cuts_heads_by_ulysses_inside_and_cuts_its_factor_of_the_key_heads) {
  const ir::Graph graph = grouped_heads();
  const layout::StageMesh wide{{layout::StageAxis::ulysses, 4}, {layout::StageAxis::outer, 2}};
  const layout::Mesh mesh = replica_mesh(graph, {}, wide, 0, graph.units());
  EXPECT_EQ(mesh.axes, (std::vector<layout::Axis>{{"ulysses/0", 2}, {"ulysses/1", 2}, {"outer", 2}}));
  const ir::Type q = ir::tokens_by(DType::bf16, 64, {16, 4}), k = ir::tokens_by(DType::bf16, 16, {4});
  const RoleLayout keys = role_layout(layout::Role::attention, k, true, mesh);
  EXPECT_EQ(keys.layout, (layout::Layout{{{}, {2, 0}}, {}}));
  EXPECT_EQ(keys.copies, std::vector<int>{1});
  EXPECT_EQ(role_layout(layout::Role::attention, q, true, mesh).layout, (layout::Layout{{{}, {2, 0, 1}}, {}}));
  EXPECT_EQ(role_layout(layout::Role::block, k, true, mesh).layout, (layout::Layout{{{0, 1}, {2}}, {}}));
  EXPECT_EQ(role_layout(layout::Role::residual, q, true, mesh).layout, (layout::Layout{{{0, 1, 2}, {}}, {}}));
  EXPECT_EQ(role_layout(layout::Role::residual, q, false, mesh).layout, (layout::Layout{{{0, 1}, {}}, {}}));
  EXPECT_EQ(role_layout(layout::Role::boundary, q, false, mesh).layout, (layout::Layout{{{0, 1, 2}, {}}, {}}));
  EXPECT_EQ(param_layout(graph, param_index(graph, kK), {}, mesh).split, (std::vector<std::vector<int>>{{2}, {}}));
}

TEST(ReplicaMesh, cuts_key_heads_by_outer_before_inner) {
  const ir::Graph graph = grouped_heads();
  const layout::StageMesh wide{{layout::StageAxis::outer, 2}, {layout::StageAxis::inner, 4}};
  const layout::Mesh mesh = replica_mesh(graph, {}, wide, 0, graph.units());
  EXPECT_EQ(mesh.axes, (std::vector<layout::Axis>{{"outer", 2}, {"inner/0", 2}, {"inner/1", 2}}));
  const ir::Type k = ir::tokens_by(DType::bf16, 16, {4});
  const RoleLayout keys = role_layout(layout::Role::block, k, true, mesh);
  EXPECT_EQ(keys.layout, (layout::Layout{{{}, {0, 1}}, {}}));
  EXPECT_EQ(keys.copies, std::vector<int>{2});
  EXPECT_EQ(role_layout(layout::Role::residual, k, false, mesh).layout, (layout::Layout{{{}, {1, 2}}, {}}));
  EXPECT_EQ(param_layout(graph, param_index(graph, kK), {}, mesh).split, (std::vector<std::vector<int>>{{0}, {1, 2}}));
}

TEST(ReplicaMesh, follows_the_strategys_own_cuts) {
  const ir::Graph graph = grouped_heads();
  const config::Strategy strategy =
      stage_strategy("own", {{"*.q_proj.weight", {{0, 2}, {1, 2}}}, {"*.up_proj.weight", {}}});
  const layout::Mesh mesh = whole_mesh(graph, strategy, 4);
  EXPECT_EQ(sizes_of(mesh), (std::vector<int>{2, 2}));
  EXPECT_EQ(param_layout(graph, param_index(graph, kQ), strategy, mesh).split,
            (std::vector<std::vector<int>>{{0}, {1}}));
  EXPECT_EQ(param_layout(graph, param_index(graph, kK), strategy, mesh).split,
            (std::vector<std::vector<int>>{{0, 1}, {}}));
  EXPECT_EQ(param_layout(graph, param_index(graph, "model.layers.1.mlp.up_proj.weight"), strategy, mesh),
            layout::replicated(2));
}

TEST(ReplicaMesh, cuts_by_the_axes_that_the_strategy_names) {
  using enum layout::StageAxis;
  const ir::Graph graph = grouped_heads();
  const layout::StageMesh wide{{outer, 4}, {inner, 2}};
  const config::Strategy strategy = stage_strategy(
      "named", {{"*.q_proj.weight", {{1, 0, inner}, {0, 2, outer}, {1, 0, outer}}}, {kK, {{0, 2, outer}}}});
  const layout::Mesh mesh = replica_mesh(graph, strategy, wide, 0, graph.units());
  EXPECT_EQ(mesh.axes, (std::vector<layout::Axis>{{"outer/0", 2}, {"outer/1", 2}, {"inner", 2}}));
  EXPECT_EQ(param_layout(graph, param_index(graph, kQ), strategy, mesh).split,
            (std::vector<std::vector<int>>{{0}, {2, 1}}));
  EXPECT_EQ(param_layout(graph, param_index(graph, kK), strategy, mesh).split,
            (std::vector<std::vector<int>>{{0}, {}}));
  // Where the mesh lacks the axis, ranks hold copies.
  const config::Strategy of_inner = stage_strategy("inner", {{kQ, {{0, 0, inner}}}});
  EXPECT_EQ(param_layout(graph, param_index(graph, kQ), of_inner, whole_mesh(graph, of_inner, 2)),
            layout::replicated(2));
}

TEST(ReplicaMesh, refuses_factors_that_do_not_divide_their_axis) {
  const ir::Graph graph = grouped_heads();
  const config::Strategy odd =
      stage_strategy("odd", {{kQ, {{0, 2, layout::StageAxis::outer}, {1, 4, layout::StageAxis::outer}}}});
  EXPECT_EQ(message_of([&] { whole_mesh(graph, odd, 4); }),
            "strategy \"odd\": " + kQ +
                " is cut by a factor 4 of the axis outer, which does not divide the 2 parts that are left of it on a "
                "stage with the mesh (outer=4). Use one that does.");
}

TEST(ReplicaMesh, refuses_cuts_that_do_not_fit_the_ranks) {
  const ir::Graph graph = grouped_heads();
  const config::Strategy odd = stage_strategy("odd", {{kQ, {{0, 3}}}});
  EXPECT_EQ(message_of([&] { whole_mesh(graph, odd, 4); }),
            "strategy \"odd\": " + kQ +
                " is cut into 3 parts, which does not divide the 4 parts of a stage with the mesh (outer=4). Use "
                "cuts whose product divides them.");
  config::ModelConfig many = small_llama();
  many.heads = many.kv_heads = 12;
  many.head_dim = 4;
  const ir::Graph wide = models::build(many, precision_from("bf16"), models::Output::loss);
  const config::Strategy crossed = stage_strategy("crossed", {{kQ, {{0, 2}}}, {kK, {{0, 3}}}});
  EXPECT_EQ(message_of([&] { whole_mesh(wide, crossed, 6); }),
            "strategy \"crossed\": cuts into 2 and into 3 parts do not nest on 6 ranks. Use parts of which each "
            "divides the next.");
}

TEST(ReplicaMesh, heeds_only_the_cuts_of_its_own_units) {
  const ir::Graph graph = grouped_heads();
  const config::Strategy strategy = stage_strategy("first", {{kQ, {{0, 4}}}});
  EXPECT_EQ(sizes_of(replica_mesh(graph, strategy, tensor_mesh(2), 2, graph.units())), (std::vector<int>{2}));
  EXPECT_EQ(message_of([&] { replica_mesh(graph, strategy, tensor_mesh(2), 0, 2); }),
            "strategy \"first\": " + kQ +
                " is cut into 4 parts, which does not divide the 2 parts of a stage with the mesh (outer=2). Use "
                "cuts whose product divides them.");
}

TEST(ParamLayout, refuses_a_dim_that_the_parameter_lacks) {
  const ir::Graph graph = grouped_heads();
  const config::Strategy strategy = stage_strategy("deep", {{"model.norm.weight", {{1, 2}}}});
  EXPECT_EQ(message_of([&] {
              param_layout(graph, param_index(graph, "model.norm.weight"), strategy, whole_mesh(graph, strategy, 2));
            }),
            "strategy \"deep\": model.norm.weight has 1 dims, so it has no dim 1 to cut. Use 0 to 0.");
}

}  // namespace
}  // namespace switchyard::compiler
