#include "ir/operators/embedding.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

TEST(Embedding, gives_a_row_of_the_table_per_token) {
  const std::vector<Type> in = {per_token(DType::i64), matrix(100, 64)};
  EXPECT_EQ(Embedding().shape(in), std::vector<Type>{tokens_by(DType::bf16, 64, {})});
}

TEST(Embedding, of_a_table_cut_in_rows_is_partial_and_in_columns_cut) {
  EXPECT_EQ(Question({2}).feed().weight(cut({{0}, {}})).output().ask(Embedding()).gives[0], cut({{}, {}}, {0}));
  EXPECT_EQ(Question({2}).feed().weight(cut({{}, {0}})).output().ask(Embedding()).gives[0], cut({{}, {0}}));
}

TEST(EmbeddingDw, wants_all_tokens_where_its_rows_are_cut_and_is_partial_where_they_are_not) {
  const LayoutRule rows = Question({2}).activation(cut({{0}, {}})).feed().output(cut({{0}, {}})).ask(EmbeddingDw());
  EXPECT_EQ(rows.needs[0], cut({{}, {}}));
  EXPECT_EQ(rows.gives[0], cut({{0}, {}}));
  const LayoutRule copies = Question({2}).activation(cut({{0}, {}})).feed().output(cut({{}, {}})).ask(EmbeddingDw());
  EXPECT_EQ(copies.needs[1], cut({{0}}));
  EXPECT_EQ(copies.gives[0], cut({{}, {}}, {0}));
}

TEST(Embedding, costs_the_rows_of_its_tokens_and_not_the_table) {
  const std::vector<Type> in = {per_token(DType::i64), matrix(100, 64)}, out = {tokens_by(DType::bf16, 64, {})};
  const Cost rows = Embedding().cost(in, out);
  EXPECT_EQ(rows.bytes_per_token, 8 + 2 * 64 * 2);
  EXPECT_EQ(rows.bytes_fixed, 0);
  const Type table{DType::f32, in[1].shape};
  const Cost gradients = EmbeddingDw().cost(std::vector{out[0], in[0]}, std::vector{table});
  EXPECT_EQ(gradients.bytes_per_token, 64 * 2 + 8 + 2 * 64 * 4) << "read and written in the accumulator's dtype";
  EXPECT_EQ(gradients.bytes_fixed, 0);
}

TEST(Embedding, has_no_gradient_for_indices_and_one_accumulating_call_for_the_table) {
  Graph graph(precision_from("bf16"));
  const int table = graph.add_param({"table", {{10, 4}, {}}, 0, "", {}, {}, {}});
  const int x = graph.call(std::make_shared<Embedding>(), {graph.feed(Feed::ids), table}, "x")[0];
  const Call call = graph.calls()[0];
  std::vector<int> existing(2, -1);
  EXPECT_EQ(Embedding().input_gradient(graph, call, {x}, existing), (std::vector<int>{-1, -1}));
  Embedding().weight_gradient(graph, call, {x});
  EXPECT_EQ(graph.calls().back().out, std::vector<int>{graph.gradient_value(0)});
}

}  // namespace
}  // namespace switchyard::ir
