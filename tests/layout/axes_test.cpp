#include "layout/axes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace switchyard::layout {
namespace {

using enum StageAxis;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

TEST(StageAxes, are_listed_in_the_order_of_their_numbers_with_names_of_their_own) {
  std::set<std::string_view> names;
  for (size_t a = 0; a < kStageAxes; ++a) {
    EXPECT_EQ(static_cast<size_t>(stage_axes()[a].axis), a);
    EXPECT_EQ(info_of(stage_axes()[a].axis).name, stage_axes()[a].name);
    EXPECT_EQ(stage_axes()[a].searched, stage_axes()[a].axis != data);
    names.insert(stage_axes()[a].name);
  }
  EXPECT_EQ(names.size(), kStageAxes);
}

TEST(StageMesh, has_replicas_of_equal_size) {
  const StageMesh mesh{{data, 3}, {depth, 2}, {ring, 7}, {ulysses, 2}, {outer, 4}, {inner, 5}};
  EXPECT_EQ(mesh.ranks(), 1680);
  EXPECT_EQ(mesh.replicas(), 6);
  EXPECT_EQ(mesh.positions(), 40) << "code is compiled for one ring rank";
  EXPECT_EQ(mesh.parts(weight_axes()), 20);
  EXPECT_EQ(mesh.copies(), 84) << "replicas, and the parts of their tokens";
  EXPECT_EQ(to_string(mesh), "data=3 depth=2 ring=7 ulysses=2 outer=4 inner=5");
  EXPECT_EQ(StageMesh().ranks(), 1);
  EXPECT_EQ(to_string(StageMesh()), "");
}

TEST(StageAxes, of_replicas_come_first) {
  for (size_t a = 0; a < replica_axes().size(); ++a) EXPECT_EQ(static_cast<size_t>(replica_axes()[a]), a);
  for (size_t a = 0; a < axes_outside_code().size(); ++a) EXPECT_EQ(static_cast<size_t>(axes_outside_code()[a]), a);
  EXPECT_EQ(axes_outside_code().size(), replica_axes().size() + 1);
}

// Source: arXiv 1910.02054 (ZeRO), 2502.08145 (depth).
TEST(RowCuts, are_of_depth_always_and_inside_it_of_other_copies_as_zero_says) {
  const StageMesh mesh{{data, 2}, {depth, 2}, {ulysses, 2}, {outer, 2}, {inner, 2}};
  for (const int zero : {0, 1}) {
    EXPECT_THAT(row_cuts(mesh, zero).stored, ElementsAre(depth));
    EXPECT_THAT(row_cuts(mesh, zero).grad, ElementsAre(depth));
  }
  EXPECT_THAT(row_cuts(mesh, 2).stored, ElementsAre(depth));
  EXPECT_THAT(row_cuts(mesh, 2).grad, ElementsAre(depth, data, ulysses));
  EXPECT_THAT(row_cuts(mesh, 3).stored, ElementsAre(depth, data, ulysses));
  EXPECT_THAT(row_cuts(mesh, 3).grad, ElementsAre(depth, data, ulysses));
  EXPECT_THAT(row_cuts({{data, 2}, {outer, 2}}, 2).grad, ElementsAre(data)) << "only axes on which ranks lie";
  EXPECT_THAT(row_cuts({{data, 2}, {ring, 2}, {ulysses, 2}}, 3).stored, ElementsAre(data, ring, ulysses));
  EXPECT_EQ(row_cuts({{data, 2}, {outer, 2}}, 1), RowCuts{});
}

// Whatever is cut twice by an axis could not be laid out.
TEST(StageAxes, cut_no_value_twice) {
  for (const bool sequence_parallel : {true, false})
    for (const Role role : {Role::residual, Role::boundary, Role::block, Role::attention, Role::head}) {
      std::set<StageAxis> used;
      size_t count = 0;
      const RoleCuts cuts = cuts_of(role, sequence_parallel);
      for (const auto axes : {cuts.tokens, cuts.features})
        for (const StageAxis axis : axes) {
          EXPECT_THAT(axes_outside_code(), Not(Contains(axis))) << "their places have tokens of their own";
          used.insert(axis);
          ++count;
        }
      EXPECT_EQ(used.size(), count);
    }
}

TEST(StageAxes, bring_the_same_ranks_to_attention_as_to_its_result) {
  for (const bool sequence_parallel : {true, false}) {
    const auto axes_of = [&](Role role) {
      const RoleCuts cuts = cuts_of(role, sequence_parallel);
      std::set<StageAxis> axes(cuts.tokens.begin(), cuts.tokens.end());
      axes.insert(cuts.features.begin(), cuts.features.end());
      return axes;
    };
    EXPECT_EQ(axes_of(Role::attention), axes_of(Role::block)) << "all-to-alls, no gathers";
  }
}

TEST(StageAxes, cut_the_dims_of_a_weight_once_each) {
  for (const bool sequence_parallel : {true, false})
    for (const DimRole role : {DimRole::heads, DimRole::ffn}) {
      const auto rows = cuts_of(role, sequence_parallel), columns = cuts_of(DimRole::hidden, sequence_parallel);
      EXPECT_THAT(rows, ElementsAre(outer));
      EXPECT_THAT(columns, ElementsAre(inner));
    }
  EXPECT_THAT(cuts_of(DimRole::vocabulary, true), ElementsAre(outer, inner));
  EXPECT_THAT(cuts_of(DimRole::none, true), IsEmpty());
}

TEST(StageAxes, cut_the_weights_of_norms_as_the_features_of_the_stream) {
  EXPECT_THAT(cuts_of(DimRole::norm, true), IsEmpty());
  EXPECT_THAT(cuts_of(DimRole::norm, false), ElementsAre(inner));
  EXPECT_THAT(cuts_of(Role::residual, true).tokens, ElementsAre(ulysses, outer, inner));
  EXPECT_THAT(cuts_of(Role::residual, false).tokens, ElementsAre(ulysses));
}

TEST(LeadingFactors, are_all_axes_up_to_the_pieces_and_multiply_to_them_above) {
  const auto factors = [](int outer_size, int ulysses_size, i64 pieces) {
    constexpr std::array axes{outer, ulysses};
    return leading_factors({{outer, outer_size}, {ulysses, ulysses_size}}, axes, pieces);
  };
  EXPECT_THAT(*factors(2, 2, 4), ElementsAre(2, 2));
  EXPECT_THAT(*factors(3, 1, 4), ElementsAre(3, 1)) << "uneven parts";
  EXPECT_THAT(*factors(2, 4, 4), ElementsAre(2, 2));
  EXPECT_THAT(*factors(2, 2, 2), ElementsAre(2, 1));
  EXPECT_THAT(*factors(8, 2, 4), ElementsAre(4, 1));
  EXPECT_THAT(*factors(1, 8, 2), ElementsAre(1, 2));
  EXPECT_FALSE(factors(3, 2, 4));
  EXPECT_FALSE(factors(6, 1, 4));
  EXPECT_FALSE(factors(2, 3, 4));
}

TEST(FactorsOf, finds_an_axis_that_is_refined) {
  const Mesh mesh{{{"ulysses/0", 2}, {"ulysses/1", 2}, {"outer", 2}}, {0, 1, 2, 3, 4, 5, 6, 7}};
  EXPECT_THAT(factors_of(mesh, ulysses), ElementsAre(0, 1));
  EXPECT_THAT(factors_of(mesh, cuts_of(Role::attention, true).features), ElementsAre(2, 0, 1));
  EXPECT_THAT(factors_of(mesh, data), IsEmpty());
}

TEST(LeadingAxes, end_before_there_are_more_parts_than_pieces) {
  const Mesh mesh{{{"outer/0", 4}, {"outer/1", 2}, {"ulysses", 2}}, {}};
  EXPECT_EQ(leading_axes(mesh, {0, 1, 2}, 16), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(leading_axes(mesh, {0, 1, 2}, 15), (std::vector<int>{0, 1}));
  EXPECT_EQ(leading_axes(mesh, {0, 1, 2}, 4), std::vector<int>{0});
  EXPECT_EQ(leading_axes(mesh, {2, 0}, 3), std::vector<int>{2});
  EXPECT_EQ(leading_axes(mesh, {0}, 3), std::vector<int>{});
}

}  // namespace
}  // namespace switchyard::layout
