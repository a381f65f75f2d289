#include "ir/operators/unfused_attention.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

// 8 query heads, 4 key/value heads of 16 features.
const Type kQueries = tokens_by(DType::bf16, 128, {32, 16}), kKeys = tokens_by(DType::bf16, 64, {16});

TEST(UnfusedAttention, stores_a_square_for_each_head_and_with_dropout_the_mask_and_the_result) {
  const std::vector<Type> in = {kQueries, kKeys, kKeys};
  const std::vector<Type> plain = UnfusedAttention(16, 4, 0, 1).shape(in),
                          dropped = UnfusedAttention(16, 4, 0.1, 1).shape(in);
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[1].shape.size, (std::vector<i64>{8, kSquaredLengths}));
  EXPECT_EQ(elements(plain[1], {.tokens = 7, .squared_lengths = 49}), 8 * 49);
  ASSERT_EQ(dropped.size(), 4u);
  EXPECT_EQ(dropped[2].dtype, DType::u8);
  EXPECT_EQ(dropped[3], plain[1]);
}

TEST(UnfusedAttention, recomputes_all_but_its_result) {
  EXPECT_FALSE(UnfusedAttention(16, 4, 0.1, 1).is_remade(0));
  EXPECT_TRUE(UnfusedAttention(16, 4, 0.1, 1).is_remade(1));
}

TEST(UnfusedAttention, costs_by_the_squared_lengths_of_documents) {
  const std::vector<Type> in = {kQueries, kKeys, kKeys}, out = UnfusedAttention(16, 4, 0, 1).shape(in);
  const Cost cost = UnfusedAttention(16, 4, 0, 1).cost(in, out);
  EXPECT_EQ(cost.flops_per_square, 2 * 2 * 128) << "two products of 16 multiplications and additions, 8 heads";
  EXPECT_EQ(cost.bytes_per_square, 4 * 2 * 8);
  EXPECT_EQ(cost.flops_per_pair, 0);
  EXPECT_EQ(cost.bytes_per_token, 2 * (2 * 128 + 2 * 64)) << "queries, keys, values and results";
}

TEST(UnfusedAttention, cuts_its_squared_lengths_by_heads) {
  const LayoutRule rule = Question({4})
                              .activation(cut({{}, {0}}))
                              .activation(cut({{}, {0}}))
                              .activation(cut({{}, {0}}))
                              .output()
                              .output()
                              .ask(UnfusedAttention(16, 4, 0, 1));
  EXPECT_EQ(rule.gives[1], cut({{0}, {}}));
}

}  // namespace
}  // namespace switchyard::ir
