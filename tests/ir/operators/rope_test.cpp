#include "ir/operators/rope.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

TEST(Rope, rotates_back_in_its_gradient) {
  Graph graph(precision_from("fp32"));
  const int x = graph.add_param({"x", {{4, 32}, {}}, 0, "", {}, {}, {}});
  graph.call(std::make_shared<Rope>(16, false), {x, graph.feed(Feed::positions)}, "y");
  const Call call = graph.calls()[0];
  std::vector<int> existing(2, -1);
  const std::vector<int> gradients = Rope(16, false).input_gradient(graph, call, {x}, existing);
  EXPECT_EQ(gradients[1], -1);
  const auto& back = dynamic_cast<const Rope&>(*graph.calls().back().op);
  EXPECT_TRUE(back.inverse());
  EXPECT_EQ(back.head_dim(), 16);
  EXPECT_FALSE(back.rotates_by_document());
}

TEST(Rope, rotates_back_by_the_tables_that_it_rotates_by) {
  Graph graph(precision_from("fp32"));
  const int x = graph.add_param({"x", {{4, 32}, {}}, 0, "", {}, {}, {}});
  const Rope rope(16, false, true);
  EXPECT_TRUE(rope.rotates_by_document());
  graph.call(std::make_shared<Rope>(rope), {x, graph.feed(Feed::positions)}, "y");
  const Call call = graph.calls()[0];
  std::vector<int> existing(2, -1);
  rope.input_gradient(graph, call, {x}, existing);
  EXPECT_TRUE(graph.calls().back().op->rotates_by_document());
}

TEST(Rope, follows_the_cut_of_heads_and_lets_pending_sums_pass) {
  EXPECT_EQ(Question({2}).activation(cut({{}, {0}})).feed().output().ask(Rope(16, false)).gives[0], cut({{}, {0}}));
  const LayoutRule rule = Question({2, 2}).activation(cut({{}, {0}}, {1})).feed().output().ask(Rope(16, true));
  EXPECT_EQ(rule.needs[0], cut({{}, {0}}, {1}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0}}, {1}));
}

TEST(Rope, reads_tables_for_its_head_dim) { EXPECT_EQ(Rope(16, false).rotary_head_dim(), 16); }

}  // namespace
}  // namespace switchyard::ir
