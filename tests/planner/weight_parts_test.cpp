#include "planner/weight_parts.hpp"

#include <gtest/gtest.h>

#include "../compiler/small_models.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

using layout::StageAxis;

// LLaMA of one layer with 4 heads and 2 key/value heads.
const ir::Graph& one_layer() {
  static const ir::Graph graph = [] {
    config::ModelConfig model = compiler::small_llama();
    model.layers = 1;
    return compiler::training_graph(model);
  }();
  return graph;
}

// Place of a parameter among the matrices.
size_t matrix(const std::string& end_of_name) {
  size_t place = 0;
  for (const ir::Param& param : one_layer().params()) {
    if (param.shape.dims() < 2) continue;
    if (param.name.ends_with(end_of_name)) return place;
    ++place;
  }
  throw std::out_of_range(end_of_name);
}

std::vector<Rectangle> parts(const StageMesh& mesh, const std::string& param) {
  const WeightParts weights(one_layer());
  const auto of = weights.cuts(mesh).of(matrix(param));
  return {of.begin(), of.end()};
}

constexpr Interval kAll{0, 1}, kFirst{0, 0.5}, kSecond{0.5, 1};

TEST(WeightParts, are_rows_of_the_first_product_of_a_block_and_columns_of_the_second_one) {
  const std::vector<Rectangle> rows{{kFirst, kAll}, {kSecond, kAll}}, columns{{kAll, kFirst}, {kAll, kSecond}};
  for (const char* param : {"q_proj.weight", "gate_proj.weight", "up_proj.weight"}) {
    EXPECT_EQ(parts(outer(2), param), rows) << param;
    EXPECT_EQ(parts({{StageAxis::inner, 2}}, param), columns) << param;
  }
  for (const char* param : {"o_proj.weight", "down_proj.weight"}) {
    EXPECT_EQ(parts(outer(2), param), columns) << param;
    EXPECT_EQ(parts({{StageAxis::inner, 2}}, param), rows) << param;
  }
  EXPECT_EQ(parts({{StageAxis::outer, 2}, {StageAxis::inner, 2}}, "q_proj.weight"),
            (std::vector<Rectangle>{{kFirst, kFirst}, {kFirst, kSecond}, {kSecond, kFirst}, {kSecond, kSecond}}));
}

TEST(WeightParts, of_axes_that_cut_no_weights_are_whole) {
  EXPECT_EQ(parts({{StageAxis::ulysses, 2}, {StageAxis::depth, 2}}, "q_proj.weight"),
            (std::vector<Rectangle>{{kAll, kAll}}));
}

TEST(WeightParts, are_copies_where_there_are_fewer_heads_than_ranks) {
  EXPECT_EQ(parts(outer(4), "k_proj.weight"),
            (std::vector<Rectangle>{{kFirst, kAll}, {kFirst, kAll}, {kSecond, kAll}, {kSecond, kAll}}));
}

TEST(WeightParts, groups_are_of_parameters_that_all_placements_cut_alike) {
  const WeightParts weights(one_layer());
  const WeightParts::Cuts &whole = weights.cuts({}), &two = weights.cuts(outer(2)), &four = weights.cuts(outer(4));
  double layer = 0;
  for (const ir::Param& param : one_layer().params())
    if (param.unit == 1) layer += static_cast<double>(param.shape.elements());
  const auto groups = [&](const WeightParts::Cuts& a, const WeightParts::Cuts& b) {
    const ParamGroups& groups = weights.groups(std::array{&a, &b});
    double sum = 0;
    for (const ParamGroup& group : groups.list) sum += group.elements[1];
    EXPECT_EQ(sum, layer) << "vectors count as part of matrices";
    return groups;
  };
  EXPECT_EQ(groups(whole, whole).list.size(), 1u);
  EXPECT_EQ(groups(whole, two).list.size(), 3u) << "rows, columns, and the vocabulary, which is cut on alignments";
  EXPECT_EQ(groups(whole, four).list.size(), 6u) << "and those of ffn, which is cut so, too; keys and values";
  EXPECT_TRUE(groups(two, four).nested);
  EXPECT_FALSE(groups(four, two).nested) << "a half has rows of two quarters";
}

TEST(WeightParts, area_outside_counts_what_two_lists_have_in_common_once) {
  const Rectangle all{kAll, kAll}, rows{kFirst, kAll}, columns{kAll, kFirst}, quarter{kSecond, kSecond};
  const auto outside = [&](const std::vector<Rectangle>& some, const std::vector<Rectangle>& others) {
    return area_outside(all, some, others);
  };
  EXPECT_EQ(outside({}, {}), 1);
  EXPECT_EQ(outside({rows}, {}), 0.5);
  EXPECT_EQ(outside({}, {rows}), 0.5);
  EXPECT_EQ(outside({rows}, {columns}), 0.25);
  EXPECT_EQ(outside({rows, quarter}, {columns}), 0);
  EXPECT_EQ(area_outside(quarter, std::vector{rows}, std::vector{columns}), 0.25);
}

}  // namespace
}  // namespace switchyard::planner
