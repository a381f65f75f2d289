#include "planner/space.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <numeric>
#include <set>

#include "base/errors.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

using testing::ElementsAre;

// 3 levels of recomputation, and a fourth where tensor ranks gather; 1F1B, GPipe and zero-bubble with two caps, but
// where there is one stage; chunks need a layer each.
TEST(Space, has_as_many_shapes_as_counted_by_hand) {
  EXPECT_EQ(shapes(model_of(2, 64, 100), 1, {}).size(), 3u);
  EXPECT_EQ(shapes(model_of(2, 64, 100), 2, {}).size(), 3u + 12 + 15 + 2)
      << "2,1,1  1,1,2  and two ranks of a stage on each of five axes";
  EXPECT_EQ(shapes(model_of(3, 64, 100), 2, {}).size(), 32u) << "one layer less in the last stage is 2 and 1 again";
  EXPECT_EQ(shapes(model_of(4, 64, 100), 2, {}).size(), 3u + 24 + 6 + 15 + 2)
      << "2 and 2, 3 and 1; two chunks of a layer in a loop and in a v";
  EXPECT_EQ(shapes(model_of(2, 64, 100), 4, {.stage_ranks = {1}, .pp = {2}}).size(), 24u + 18)
      << "either pipelines or stages side by side; zeropp, as there are copies to be cut";
}

TEST(Space, chunks_go_with_their_schedules_and_have_a_layer_each) {
  std::set<std::tuple<int, schedule::Placement, config::ScheduleKind, int>> found;
  for (const Shape& shape : shapes(model_of(7, 64, 100), 2, {.stage_ranks = {1}, .pp = {2}, .most_head_layers = 0}))
    found.emplace(shape.placement.chunks, shape.placement.path, shape.schedule, shape.activation_cap);
  using config::ScheduleKind;
  using schedule::Placement;
  EXPECT_THAT(found, testing::UnorderedElementsAre(std::tuple(1, Placement::loop, ScheduleKind::one_f_one_b, 0),
                                                   std::tuple(1, Placement::loop, ScheduleKind::gpipe, 0),
                                                   std::tuple(1, Placement::loop, ScheduleKind::zero_bubble, 0),
                                                   std::tuple(1, Placement::loop, ScheduleKind::zero_bubble, 4),
                                                   std::tuple(2, Placement::loop, ScheduleKind::interleaved, 0),
                                                   std::tuple(3, Placement::loop, ScheduleKind::interleaved, 0),
                                                   std::tuple(2, Placement::v, ScheduleKind::zb_v, 0)));
}

TEST(Space, zeropp_comes_where_parameters_are_gathered_in_blocks_of_three_sizes) {
  const auto found = [](const SpaceLimits& limits, int ranks) {
    std::set<std::tuple<int, int, int>> found;
    for (const Shape& shape : shapes(model_of(9, 64, 100), ranks, limits))
      if (shape.blockwise()) {
        found.emplace(shape.placement.chunks, shape.every, shape.placement.zero);
        EXPECT_TRUE(shape.splits_gradients());
        EXPECT_GT(shape.placement.cuts(3), 1);
        const config::Strategy strategy = strategy_of(shape, 9, 100);
        EXPECT_EQ(strategy.every, shape.every);
        EXPECT_TRUE(strategy.gathers());
        config::validate(strategy, model_of(9, 64, 100), ranks);
      }
    return found;
  };
  const std::set<std::tuple<int, int, int>> all = {{1, 3, 3},  {1, 5, 3}, {1, 10, 3}, {2, 3, 3}, {2, 5, 3},
                                                   {2, 10, 3}, {3, 3, 3}, {3, 5, 3},  {3, 10, 3}};
  EXPECT_EQ(found({.stage_ranks = {1}, .pp = {3}}, 6), all);
  EXPECT_EQ(found({.stage_ranks = {2}, .pp = {3}, .axes = {layout::StageAxis::ulysses}}, 6), all);
  EXPECT_TRUE(found({.stage_ranks = {1}, .pp = {3}}, 3).empty()) << "nobody holds a copy";
  EXPECT_TRUE(found({.stage_ranks = {2}, .pp = {1}}, 4).empty()) << "with one stage it is ZeRO-3";
  const SpaceLimits depths{.stage_ranks = {2}, .pp = {3}, .axes = {layout::StageAxis::depth}};
  for (const auto& [chunks, every, zero] : found(depths, 12)) EXPECT_EQ(zero, 1) << "depth gathers anyway";
  const Shape shape{{2, {}, 3, config::Inside::data, 0, 2, schedule::Placement::loop, 3},
                    config::Recompute::gathers,
                    config::ScheduleKind::zeropp,
                    0,
                    5};
  EXPECT_EQ(to_string(shape), "dp=2,pp=3,zero=3,every=5,schedule=zeropp,chunks=2");
  EXPECT_EQ(shape.blocks(11), 3);
  EXPECT_EQ(shape.block_size(4, 11), 5);
  EXPECT_EQ(shape.block_size(10, 11), 1);
}

TEST(Space, limits_are_kept) {
  const SpaceLimits limits{.stage_ranks = {2, 4},
                           .pp = {1, 3},
                           .axes = {layout::StageAxis::outer},
                           .most_head_layers = 0,
                           .both_orders = false,
                           .recompute = {config::Recompute::full}};
  const std::vector<Shape> all = shapes(model_of(6, 64, 100), 12, limits);
  EXPECT_EQ(all.size(), 2u * (1 + 4 + 2) + 6) << "zeropp with one and two chunks, where dp is 2";
  for (const Shape& shape : all) {
    EXPECT_TRUE(shape.placement.stage_ranks() == 2 || shape.placement.stage_ranks() == 4);
    EXPECT_EQ(shape.placement.head_layers, 0);
    EXPECT_EQ(shape.recompute, config::Recompute::full);
  }
}

TEST(Space, tensor_ranks_divide_the_heads_and_fit_the_key_value_heads) {
  config::ModelConfig model = model_of(2, 96, 100);
  model.heads = 12;
  model.kv_heads = 4;
  model.head_dim = 8;
  std::set<int> found;
  for (const Shape& shape : shapes(model, 24, {})) found.insert(shape.placement.code_ranks());
  EXPECT_THAT(found, ElementsAre(1, 2, 3, 4, 8, 12)) << "6 is above 4 and no multiple of it; 5 divides nothing";
}

// With 8 heads and six or seven ranks, powers of two would leave a third of them idle, or more.
TEST(Space, stages_that_fill_all_ranks_may_be_of_any_size) {
  const auto largest = [](int ranks, layout::StageAxis axis) {
    int largest = 0;
    for (const Shape& shape : shapes(model_of(2, 64, 100), ranks, {}))
      largest = std::max(largest, shape.placement.mesh[axis]);
    return largest;
  };
  for (const int ranks : {6, 7}) {
    for (const layout::StageAxis axis : {layout::StageAxis::ring, layout::StageAxis::ulysses, layout::StageAxis::outer})
      EXPECT_EQ(largest(ranks, axis), ranks) << layout::info_of(axis).name;
    for (const layout::StageAxis axis : {layout::StageAxis::depth, layout::StageAxis::inner})
      EXPECT_EQ(largest(ranks, axis), 4) << layout::info_of(axis).name;
  }
  for (const Shape& shape : shapes(model_of(2, 64, 100), 7, {.stage_ranks = {3, 5, 6}}))
    ADD_FAILURE() << to_string(shape) << " leaves ranks out, and fills no more than smaller ones";
}

StageMesh with_ring(int ring, StageMesh mesh) {
  mesh[layout::StageAxis::ring] = ring;
  return mesh;
}

StageMesh with_depth(int depth, StageMesh mesh) {
  mesh[layout::StageAxis::depth] = depth;
  return mesh;
}

TEST(Space, rings_have_no_second_cut_of_weights_and_fused_attention_and_are_powers_of_two_where_they_fill_no_ranks) {
  config::ModelConfig model = model_of(2, 64, 100);
  for (const Shape& shape : shapes(model, 12, {})) {
    const int ring = shape.placement.ring(), depth = shape.placement.mesh[layout::StageAxis::depth];
    EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(depth))) << to_string(shape);
    EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(ring)) ||
                (12 % shape.placement.stage_ranks() == 0 && depth == 1))
        << to_string(shape);
    EXPECT_TRUE(ring == 1 || shape.placement.mesh[layout::StageAxis::inner] == 1);
    EXPECT_EQ(shape.placement.code_ranks() * ring * depth, shape.placement.stage_ranks());
    EXPECT_EQ(shape.placement.pipelines(), shape.placement.dp * depth);
  }
  model.attention = config::AttentionKind::unfused;
  for (const Shape& shape : shapes(model, 12, {})) EXPECT_EQ(shape.placement.ring(), 1);
}

TEST(Space, ranks_of_a_stage_are_divided_over_the_axes_in_every_way) {
  std::set<StageMesh> found;
  for (const Shape& shape : shapes(model_of(2, 64, 100), 4, {.stage_ranks = {4}})) found.insert(shape.placement.mesh);
  EXPECT_EQ(found, (std::set{mesh(1, 1, 4), mesh(1, 2, 2), mesh(1, 4, 1), mesh(2, 1, 2), mesh(2, 2, 1), mesh(4, 1, 1),
                             with_ring(4, mesh(1, 1, 1)), with_ring(2, mesh(2, 1, 1)), with_ring(2, mesh(1, 2, 1)),
                             with_depth(4, mesh(1, 1, 1)), with_depth(2, mesh(2, 1, 1)), with_depth(2, mesh(1, 2, 1)),
                             with_depth(2, mesh(1, 1, 2)), with_depth(2, with_ring(2, mesh(1, 1, 1)))}));
}

TEST(Space, a_key_belongs_to_one_mesh) {
  std::map<std::uint64_t, StageMesh> meshes;
  for (int ring = 1; ring <= 16384; ring = ring < 64 ? ring + 1 : ring + ring / 2)
    for (int depth = 1; depth * ring <= 16384; depth = depth < 64 ? depth + 1 : depth + depth / 2)
      for (const StageMesh& rest : {mesh(1, 1, 1), mesh(1, 1, 2), mesh(2, 1, 1), mesh(3, 2, 1)}) {
        const StageMesh one = with_depth(depth, with_ring(ring, rest));
        EXPECT_EQ(meshes.emplace(mesh_key(one), one).first->second, one);
      }
}

TEST(Space, every_shape_is_a_strategy_that_a_job_may_have) {
  for (const int ranks : {1, 6, 8})
    for (const i64 layers : {3, 7})
      for (const Shape& shape : shapes(model_of(layers, 64, 100), ranks, {})) {
        const config::Strategy strategy = strategy_of(shape, layers, 100);
        EXPECT_NO_THROW(config::validate(strategy, model_of(layers, 64, 100), ranks)) << to_string(shape);
        EXPECT_EQ(strategy.ranks().size(), static_cast<size_t>(shape.placement.ranks()));
        EXPECT_LE(shape.placement.ranks(), ranks);
        EXPECT_GT(shape.placement.ranks() + shape.placement.stage_ranks() * shape.placement.pp, ranks)
            << "no more pipelines fit";
      }
}

// What plans print can be given to --strategy.
TEST(Space, texts_of_shapes_and_their_names_are_read_back) {
  std::set<std::string> texts;
  const std::vector<Shape> all = shapes(model_of(7, 64, 100), 8, {});
  for (const Shape& shape : all) {
    config::Strategy strategy = strategy_of(shape, 7, 0);
    config::Strategy read = config::strategy_from_spec(to_string(shape), 8, 7);
    EXPECT_TRUE(texts.insert(to_string(shape)).second) << to_string(shape);
    EXPECT_NO_THROW(config::read_strategy_text(strategy.name)) << strategy.name;
    strategy.name = read.name = "";
    strategy.chunks = strategy.chunk_count();
    EXPECT_EQ(read, strategy) << to_string(shape);
  }
  EXPECT_EQ(texts.size(), all.size());
}

// What ranks with copies of the same weights cut of them, from which stage of ZeRO on.
TEST(Space, replicas_of_the_mesh_cut_copies_at_any_stage_of_zero) {
  Placement p{3, with_depth(2, mesh(2, 2, 1)), 1};
  EXPECT_EQ(p.copies(), 12);
  EXPECT_EQ(p.pipelines(), 6);
  EXPECT_EQ(std::tuple(p.cuts(2), p.cuts(3), p.tied()), std::tuple(2, 2, 2));
  EXPECT_FALSE((Home{p, 0}.copies()));
  p = cut_further(p).value();
  EXPECT_EQ(std::tuple(p.zero, p.cuts(2), p.cuts(3), p.tied()), std::tuple(2, 12, 2, 6));
  EXPECT_EQ(leanest(p).cuts(3), 12);
  EXPECT_EQ(cut_further({1, with_depth(4, {}), 1}), std::nullopt) << "nobody holds a copy";
  EXPECT_EQ(p.code_mesh(), mesh(2, 2, 1));
}

TEST(Space, placements_are_those_of_their_degrees) {
  int plain = 0, other = 0;
  for (const Shape& shape : shapes(model_of(7, 64, 100), 8, {})) {
    const Placement& p = shape.placement;
    const config::Strategy spec =
        config::strategy_from_spec(config::to_text(degrees_of(p)), 8, 7, strategy_of(shape, 7, 0));
    EXPECT_EQ(strategy_of(shape, 7, 0).groups, spec.groups) << to_string(p);
    ++(p.head_layers == 0 ? plain : other);
  }
  EXPECT_GT(plain, 20);
  EXPECT_GT(other, 20);
}

TEST(Space, the_usual_part_has_a_shape_of_every_usual_strategy_and_is_a_small_one) {
  const std::vector<Shape> all = shapes(model_of(16, 64, 100), 64, {});
  const i64 usual = std::ranges::count_if(all, is_usual);
  EXPECT_GT(usual, 0);
  EXPECT_LT(usual, static_cast<i64>(all.size()) / 8);
  for (const char* spec : {"64,1,1", "dp=4,tp=4,pp=4", "dp=8,ulysses=4,pp=2", "dp=2,tp=2,pp=4,ring=4"}) {
    const auto same = [&](const Shape& shape) {
      const config::Degrees degrees = degrees_of(shape.placement);
      return degrees.inside == config::Inside::data && shape.schedule == config::ScheduleKind::one_f_one_b &&
             shape.recompute == config::Recompute::gathers &&
             strategy_of(shape, 16, 0).groups ==
                 config::strategy_from_spec(spec, 64, 16, strategy_of(shape, 16, 0)).groups;
    };
    EXPECT_EQ(std::ranges::count_if(all, [&](const Shape& shape) { return is_usual(shape) && same(shape); }), 1)
        << spec;
  }
}

TEST(Space, keeping_what_is_gathered_is_a_choice_where_something_is) {
  std::map<bool, std::set<config::Recompute>> found;  // by whether a mesh has tensor ranks
  for (const Shape& shape : shapes(model_of(4, 64, 100), 8, {})) {
    const StageMesh& mesh = shape.placement.mesh;
    found[mesh[layout::StageAxis::outer] * mesh[layout::StageAxis::inner] > 1].insert(shape.recompute);
    EXPECT_GE(shape.recompute, least_recompute(mesh));
  }
  using enum config::Recompute;
  EXPECT_THAT(found[true], ElementsAre(none, gathers, selective, full));
  EXPECT_THAT(found[false], ElementsAre(gathers, selective, full));
}

TEST(Space, layers_are_spread_evenly_but_for_the_head) {
  EXPECT_THAT(layers_of_positions({1, {}, 4}, 10), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(layers_of_positions({1, {}, 4, config::Inside::data, 2}, 10), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(layers_of_positions({1, {}, 3, config::Inside::data, 2}, 3), ElementsAre(1, 1, 1))
      << "none is left without";
}

TEST(Space, orders_tell_who_is_next) {
  const Placement data{2, outer(2), 2}, pipeline{2, outer(2), 2, config::Inside::pipeline};
  EXPECT_THAT((std::vector{first_rank(data, 0, 0), first_rank(data, 1, 0), first_rank(data, 0, 1)}),
              ElementsAre(0, 2, 4));
  EXPECT_THAT((std::vector{first_rank(pipeline, 0, 0), first_rank(pipeline, 1, 0), first_rank(pipeline, 0, 1)}),
              ElementsAre(0, 4, 2));
}

TEST(Space, strategy_has_all_of_the_shape_and_a_name) {
  const Shape shape{
      {2, outer(2), 2, config::Inside::pipeline, 2}, config::Recompute::full, config::ScheduleKind::gpipe};
  const config::Strategy strategy = strategy_of(shape, 6, 512);
  EXPECT_EQ(strategy.recompute, config::Recompute::full);
  EXPECT_EQ(strategy.schedule, config::ScheduleKind::gpipe);
  EXPECT_EQ(strategy.micro_batch_tokens, 512);
  EXPECT_EQ(strategy.name, "dp=2,tp=2,pp=2,schedule=gpipe,inside=pipeline,head_layers=2");
  EXPECT_EQ(to_string(shape), "dp=2,tp=2,pp=2,schedule=gpipe,recompute=full,inside=pipeline,head_layers=2");
  EXPECT_EQ(to_string(Shape{{4, outer(1), 1}}), "4,1,1");
  EXPECT_EQ(to_string(Placement{2, mesh(2, 4, 3), 2}), "dp=2,tp=12,pp=2,ulysses=2,inner=3");
  Shape chunks{{1, outer(2), 4}, config::Recompute::gathers, config::ScheduleKind::interleaved};
  chunks.placement.chunks = 3;
  EXPECT_EQ(to_string(chunks), "tp=2,pp=4,schedule=interleaved,chunks=3");
  EXPECT_EQ(strategy_of(chunks, 12, 512).chunk_count(), 3);
  EXPECT_EQ(strategy_of(chunks, 12, 512).groups[0].stages.size(), 12u);
  EXPECT_EQ(to_string(Shape{{1, outer(2), 4}, config::Recompute::none, config::ScheduleKind::zero_bubble, 8}),
            "tp=2,pp=4,schedule=zero-bubble,activation_cap=8,recompute=none");
}

}  // namespace
}  // namespace switchyard::planner
