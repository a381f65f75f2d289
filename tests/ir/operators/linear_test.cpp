#include "ir/operators/linear.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

const Type kX = tokens_by(DType::bf16, 8, {});

TEST(Linear, gives_a_row_of_out_features_per_token_and_weight) {
  const std::vector<Type> in = {kX, {DType::bf16, {{12, 8}, {{4, 2}, {}}}}, matrix(6, 8)};
  const std::vector<Type> out = Linear(2, false).shape(in);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0], tokens_by(DType::bf16, 12, {4, 2}));  // heads stay alignments
  EXPECT_EQ(out[1], tokens_by(DType::bf16, 6, {}));
}

TEST(Linear, refuses_a_weight_of_other_in_features_or_count) {
  const std::vector<Type> in = {kX, matrix(12, 9)}, two = {kX, matrix(12, 8), matrix(12, 8)};
  EXPECT_EQ(message_of<InternalError>([&] { Linear(1, false).shape(in); }),
            "linear: 8 in-features against a weight of 9");
  EXPECT_EQ(message_of<InternalError>([&] { Linear(1, false).shape(two); }), "linear: 3 inputs");
}

TEST(Linear, gathers_tokens_before_weights_cut_in_rows_and_cuts_biases_with_them) {
  const LayoutRule rule = Question({2})
                              .activation(cut({{0}, {}}))
                              .weight(cut({{0}, {}}))
                              .weight(cut({{0}, {}}))
                              .weight(cut({{0}}))
                              .weight(cut({{0}}))
                              .output()
                              .output()
                              .ask(Linear(2, true));
  EXPECT_EQ(rule.needs[0], cut({{}, {}}));
  EXPECT_EQ(rule.needs[3], cut({{0}}));
  EXPECT_EQ(rule.gives[1], cut({{}, {0}}));
}

TEST(Linear, adds_a_whole_bias_to_one_partial_only) {
  // Rows whole, columns cut: the result is partial, so the bias must count once. The compiler passes that on as
  // first_partial.
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {0}})).weight(cut({{}, {0}})).weight(cut({{}})).output().ask(Linear(1, true));
  EXPECT_EQ(rule.needs[2], cut({{}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {}}, {0}));
}

TEST(Linear, of_queries_finer_than_keys_cuts_each_result_as_its_weight) {
  const LayoutRule rule = Question({2, 2})
                              .activation(cut({{0, 1}, {}}))
                              .weight(cut({{0, 1}, {}}))
                              .weight(cut({{0}, {}}))
                              .output()
                              .output()
                              .ask(Linear(2, false));
  EXPECT_EQ(rule.needs[0], cut({{}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0, 1}}));
  EXPECT_EQ(rule.gives[1], cut({{}, {0}}));
}

TEST(LinearDx, of_a_column_parallel_product_is_partial) {
  const LayoutRule rule = Question({2}).activation(cut({{}, {0}})).weight(cut({{0}, {}})).output().ask(LinearDx(1));
  EXPECT_EQ(rule.gives[0], cut({{}, {}}, {0}));
}

TEST(LinearDx, of_a_row_parallel_product_is_cut_in_features) {
  const LayoutRule rule = Question({2}).activation(cut({{0}, {}})).weight(cut({{}, {0}})).output().ask(LinearDx(1));
  EXPECT_EQ(rule.needs[0], cut({{}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0}}));
}

TEST(LinearDw, of_a_column_parallel_product_has_its_weights_cut_and_sees_all_tokens) {
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {0}})).activation(cut({{0}, {}})).output(cut({{0}, {}})).ask(LinearDw(1));
  EXPECT_EQ(rule.needs[1], cut({{}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{0}, {}}));
}

TEST(LinearDw, of_keys_with_a_pending_sum_is_partial_and_of_queries_is_not) {
  const LayoutRule rule = Question({2, 2})
                              .activation(cut({{}, {0, 1}}))
                              .activation(cut({{}, {0}}, {1}))
                              .activation(cut({{}, {}}))
                              .output(cut({{0, 1}, {}}))
                              .output(cut({{0}, {}}))
                              .ask(LinearDw(2));
  EXPECT_EQ(rule.needs[0], cut({{}, {0, 1}}));
  EXPECT_EQ(rule.needs[1], cut({{}, {0}}, {1}));
  EXPECT_EQ(rule.gives[0], cut({{0, 1}, {}}));  // the keys' sum has no part in the queries' weight
  EXPECT_EQ(rule.gives[1], cut({{0}, {}}, {1}));
}

TEST(LinearDw, of_terms_that_would_cut_tokens_differently_sees_all_tokens) {
  // Outputs cut by both axes leave none for tokens; those cut by the outer axis leave the inner one.
  const LayoutRule rule = Question({2, 2})
                              .activation(cut({{}, {0, 1}}))
                              .activation(cut({{}, {0}}))
                              .activation(cut({{0, 1}, {}}))
                              .output(cut({{0, 1}, {}}))
                              .output(cut({{0}, {}}))
                              .ask(LinearDw(2));
  EXPECT_EQ(rule.needs[2], cut({{}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{0, 1}, {}}));
  EXPECT_EQ(rule.gives[1], cut({{0}, {}}));
}

TEST(LinearDw, of_accumulators_that_cut_the_in_features_differently_cuts_them_as_the_first) {
  const LayoutRule rule = Question({2})
                              .activation(cut({{}, {}}))
                              .activation(cut({{}, {}}))
                              .activation(cut({{}, {}}))
                              .output(cut({{}, {0}}))
                              .output(cut({{}, {}}))
                              .ask(LinearDw(2));
  EXPECT_EQ(rule.needs[2], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[1], cut({{}, {0}}));
}

TEST(LinearDw, adds_its_product_in_place_on_a_device_and_with_wide_copies_on_a_cpu) {
  const std::vector<Type> in = {tokens_by(DType::bf16, 12, {}), kX}, out = {{DType::f32, {{12, 8}, {{}, {}}}}};
  EXPECT_EQ(LinearDw(1).workspace(in, out, {.tokens = 100}), 100 * (12 + 8) * 4);
  EXPECT_EQ(LinearDw(1).workspace(in, out, {.tokens = 100, .sequences = 1}), 0);
}

TEST(BiasDw, sums_over_tokens) {
  EXPECT_EQ(Question({2}).activation(cut({{0}, {}})).output(cut({{}})).ask(BiasDw()).gives[0], cut({{}}, {0}));
  EXPECT_EQ(Question({2}).activation(cut({{}, {0}})).output(cut({{0}})).ask(BiasDw()).gives[0], cut({{0}}));
}

TEST(Linear, costs_two_flops_a_token_and_weight_in_each_of_its_three_products) {
  const std::vector<Type> x = {kX, matrix(12, 8), matrix(6, 8)},
                          y = {tokens_by(DType::bf16, 12, {}), tokens_by(DType::bf16, 6, {})};
  EXPECT_EQ(Linear(2, false).cost(x, y).flops_per_token, 2 * 8 * 18);
  const std::vector<Type> dx_in = {y[0], y[1], x[1], x[2]}, dx_out = {kX};
  EXPECT_EQ(LinearDx(2).cost(dx_in, dx_out).flops_per_token, 2 * 8 * 18);
  const std::vector<Type> dw_in = {y[0], y[1], kX}, dw_out = {x[1], x[2]};
  EXPECT_EQ(LinearDw(2).cost(dw_in, dw_out).flops_per_token, 2 * 8 * 18);
}

TEST(Linear, asks_for_adjacent_operands_only_where_there_are_several) {
  EXPECT_EQ(Linear(3, false).adjacent_outputs(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(LinearDx(2).adjacent_inputs(), (std::vector<int>{0, 1}));
  EXPECT_EQ(LinearDw(2).adjacent_inputs(), (std::vector<int>{0, 1}));
  EXPECT_TRUE(Linear(1, true).adjacent_outputs().empty());
}

}  // namespace
}  // namespace switchyard::ir
