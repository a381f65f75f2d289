#include "ir/operators/add.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

TEST(Add, gives_its_gradient_to_both_terms_without_a_call) {
  Graph graph(precision_from("fp32"));
  std::vector<int> existing(2, -1);
  EXPECT_EQ(Add().input_gradient(graph, {}, {7}, existing), (std::vector<int>{7, 7}));
  EXPECT_TRUE(graph.calls().empty());
}

TEST(Add, lets_the_stream_decide_where_the_sum_lies) {
  const LayoutRule rule = Question({2}).activation(cut({{0}, {}})).activation(cut({{}, {}}, {0})).output().ask(Add());
  EXPECT_EQ(rule.needs[1], cut({{0}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{0}, {}}));
}

}  // namespace
}  // namespace switchyard::ir
