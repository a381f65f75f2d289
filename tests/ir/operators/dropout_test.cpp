#include "ir/operators/dropout.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"
#include "ir/operators/embedding.hpp"

namespace switchyard::ir {
namespace {

const Type kStream = tokens_by(DType::bf16, 64, {});

TEST(Dropout, gives_its_input_and_a_byte_for_each_element) {
  const std::vector<Type> in = {kStream}, out = Dropout(0.1, 1).shape(in);
  EXPECT_EQ(out[0], kStream);
  EXPECT_EQ(out[1], tokens_by(DType::u8, 64, {}));
  EXPECT_EQ(Dropout(0.1, 1).cost(in, out).bytes_per_token, 64 * (2 + 2 + 1));
}

TEST(Dropout, takes_numbers_of_64_bits_for_columns_and_some_elements_at_a_time) {
  EXPECT_EQ(dropout_workspace(3, 32), 2 * (256 + 768) + 64);
  EXPECT_EQ(dropout_workspace(100000, 1024), 2 * (8192 + (8 << 18)) + 64) << "256 rows";
  EXPECT_EQ(dropout_workspace(2, 1 << 19), 2 * (2 * (8 << 19)) + 64) << "row by row";
  const std::vector<Type> in = {tokens_by(DType::f64, 32, {})}, out = Dropout(0.1, 1).shape(in);
  EXPECT_EQ(Dropout(0.1, 1).workspace(in, out, {.tokens = 3, .longest = 3}), dropout_workspace(3, 32));
}

TEST(Dropout, is_cut_as_its_input_and_needs_whole_sums) {
  const LayoutRule cut_rule = Question({2}).activation(cut({{0}, {}})).output().output().ask(Dropout(0.1, 1));
  EXPECT_EQ(cut_rule.gives[0], cut({{0}, {}}));
  EXPECT_EQ(cut_rule.gives[1], cut({{0}, {}}));
  layout::Layout sums = cut({{}, {}});
  sums.partial = {0};
  EXPECT_TRUE(Question({2}).activation(sums).output().output().ask(Dropout(0.1, 1)).needs[0].partial.empty());
  EXPECT_TRUE(Dropout(0.1, 1).is_random());
}

TEST(Dropout, passes_gradients_through_what_it_kept) {
  Graph graph({DType::f32, DType::f32});
  const int table = graph.add_param({"w", {{5, 64}, {{}, {}}}, 0, "", {}, {0, 0}, {}});
  const int x = graph.call(std::make_shared<Embedding>(), {graph.feed(Feed::ids), table}, "x")[0];
  const std::vector<int> out = graph.call(std::make_shared<Dropout>(0.1, 1), {x}, "y");
  std::vector<int> existing = {-1};
  const std::vector<int> dx = Dropout(0.1, 1).input_gradient(graph, graph.calls().back(), {out[0], -1}, existing);
  EXPECT_EQ(graph.calls().back().op->name(), "dropout_dx");
  EXPECT_EQ(graph.calls().back().in[1], out[1]);
  EXPECT_EQ(graph.value(dx[0]).type.shape.size, kStream.shape.size);
}

}  // namespace
}  // namespace switchyard::ir
