#include "ir/graph.hpp"

#include <gtest/gtest.h>

#include "ir/operators/embedding.hpp"
#include "ir/operators/linear.hpp"

namespace switchyard::ir {
namespace {

Graph small_graph() {
  Graph graph(precision_from("bf16"));
  graph.set_unit(0);
  const int table = graph.add_param({"table", {{10, 4}, {{2}, {}}}, 0, "", {}, {}, {}});
  const int x = graph.call(std::make_shared<Embedding>(), {graph.feed(Feed::ids), table}, "x")[0];
  graph.set_unit(1);
  graph.add_param({"w", {{6, 4}, {}}, 1, "", {}, {}, {"file.w", true, 2}});
  graph.call(std::make_shared<Linear>(1, false), {x, graph.param_value(1)}, "y");
  return graph;
}

TEST(Graph, gives_parameters_the_compute_type_and_accumulators_the_state_type) {
  Graph graph = small_graph();
  EXPECT_EQ(graph.value(graph.param_value(0)).type.dtype, DType::bf16);
  EXPECT_EQ(graph.value(graph.gradient_value(0)).type.dtype, DType::f32);
  EXPECT_EQ(graph.value(graph.gradient_value(0)).kind, ValueKind::gradient);
}

TEST(Graph, makes_feeds_and_accumulators_once) {
  Graph graph = small_graph();
  EXPECT_EQ(graph.feed(Feed::ids), graph.feed(Feed::ids));
  EXPECT_NE(graph.feed(Feed::ids), graph.feed(Feed::labels));
  EXPECT_EQ(graph.gradient_value(1), graph.gradient_value(1));
  EXPECT_EQ(graph.value(graph.feed(Feed::weights)).type.dtype, DType::f32);
  EXPECT_EQ(graph.value(graph.feed(Feed::ids)).type.dtype, DType::i64);
}

TEST(Graph, fills_in_what_a_parameter_leaves_out) {
  const Graph graph = small_graph();
  EXPECT_EQ(graph.param(0).file.name, "table");
  EXPECT_EQ(graph.param(1).file.name, "file.w");
  EXPECT_EQ(graph.param(1).shape.alignment.size(), 2u);
  EXPECT_EQ(graph.units(), 2);
}

TEST(Graph, gives_calls_the_unit_and_phase_that_are_set) {
  Graph graph = small_graph();
  graph.set_pass(Pass::W);
  graph.call_into(std::make_shared<EmbeddingDw>(), {0, graph.feed(Feed::ids)}, {graph.gradient_value(0)}, "dw");
  const Call& call = graph.calls().back();
  EXPECT_EQ(call.unit, 1);
  EXPECT_EQ(call.pass, Pass::W);
  EXPECT_EQ(call.out, std::vector<int>{graph.gradient_value(0)});
}

TEST(Graph, prints_a_line_per_call) {
  EXPECT_EQ(to_string(small_graph()),
            "u0 F %2 x[T,4] = embedding(%1 ids[T], %0 table[10,4])\n"
            "u1 F %4 y[T,6] = linear(%2 x[T,4], %3 w[6,4])\n");
}

TEST(Type, counts_elements_for_a_number_of_tokens) {
  EXPECT_EQ(elements(tokens_by(DType::f32, 7, {}), {3}), 21);
  EXPECT_EQ(elements({DType::f32, {{5, 2}, {}}}, {3}), 10);
}

}  // namespace
}  // namespace switchyard::ir
