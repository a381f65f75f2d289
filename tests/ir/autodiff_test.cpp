#include "ir/autodiff.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/operators/add.hpp"
#include "ir/operators/embedding.hpp"
#include "ir/operators/head.hpp"
#include "ir/operators/linear.hpp"
#include "ir/operators/rms_norm.hpp"
#include "ir/operators/swiglu.hpp"
#include "layout_query.hpp"

namespace switchyard::ir {
namespace {

// Two blocks of norm, product and sum on a residual stream, with a head; `tied`: the head's weight is the embedding.
Graph residual_model(bool tied) {
  Graph graph(precision_from("bf16"));
  const auto param = [&](const std::string& name, std::vector<i64> size, int unit) {
    return graph.add_param({name, {std::move(size), {}}, unit, "", {}, {}, {}});
  };
  const int table = param("table", {10, 8}, 0);
  int x = graph.call(std::make_shared<Embedding>(), {graph.feed(Feed::ids), table}, "x")[0];
  for (int unit = 1; unit <= 2; ++unit) {
    graph.set_unit(unit);
    const std::string at = "block" + std::to_string(unit);
    const int a = graph.call(std::make_shared<RmsNorm>(1e-5, 0), {x, param(at + ".norm", {8}, unit)}, "a")[0];
    const std::vector<int> in = {a, param(at + ".gate", {6, 8}, unit), param(at + ".up", {6, 8}, unit),
                                 param(at + ".gate_bias", {6}, unit), param(at + ".up_bias", {6}, unit)};
    const std::vector<int> gates = graph.call(std::make_shared<Linear>(2, true), in, "gates");
    const int h = graph.call(std::make_shared<Swiglu>(), gates, "h")[0];
    const int y = graph.call(std::make_shared<Linear>(1, false), {h, param(at + ".down", {8, 6}, unit)}, "y")[0];
    x = graph.call(std::make_shared<Add>(), {x, y}, "sum")[0];
  }
  graph.set_unit(3);
  const int last = graph.call(std::make_shared<RmsNorm>(1e-5, 0), {x, param("norm", {8}, 3)}, "last")[0];
  graph.call(std::make_shared<Head>(),
             {last, tied ? table : param("head", {10, 8}, 3), graph.feed(Feed::labels), graph.feed(Feed::weights)},
             "loss");
  return graph;
}

std::map<std::string, int> accumulations(const Graph& graph) {
  std::map<std::string, int> count;
  for (const Call& call : graph.calls())
    for (const int v : call.out)
      if (graph.value(v).kind == ValueKind::gradient) ++count[graph.param(graph.value(v).param).name];
  return count;
}

int calls_of(const Graph& graph, const std::string& name) {
  return static_cast<int>(
      std::count_if(graph.calls().begin(), graph.calls().end(), [&](const Call& c) { return c.op->name() == name; }));
}

TEST(Differentiate, adds_to_every_parameter_once_per_use) {
  for (const bool tied : {false, true}) {
    Graph graph = residual_model(tied);
    differentiate(graph);
    const auto count = accumulations(graph);
    EXPECT_EQ(count.size(), graph.params().size());
    for (const auto& [name, times] : count) EXPECT_EQ(times, tied && name == "table" ? 2 : 1) << name;
  }
}

TEST(Differentiate, hands_the_streams_gradient_to_the_norms_instead_of_adding) {
  Graph graph = residual_model(false);
  const int forward_sums = calls_of(graph, "add");
  differentiate(graph);
  EXPECT_EQ(calls_of(graph, "add"), forward_sums);
  std::vector<size_t> inputs;
  for (const Call& call : graph.calls())
    if (call.op->name() == "rms_norm_dx") inputs.push_back(call.in.size());
  EXPECT_EQ(inputs, (std::vector<size_t>{4, 5, 5}));  // the last norm's stream has no other reader
}

TEST(Differentiate, adds_where_the_operator_does_not) {
  Graph graph(precision_from("fp32"));
  const int table = graph.add_param({"table", {{10, 8}, {}}, 0, "", {}, {}, {}}),
            w = graph.add_param({"w", {{8, 8}, {}}, 1, "", {}, {}, {}});
  const int x = graph.call(std::make_shared<Embedding>(), {graph.feed(Feed::ids), table}, "x")[0];
  const int y = graph.call(std::make_shared<Linear>(1, false), {x, w}, "y")[0];
  const int z = graph.call(std::make_shared<Linear>(1, false), {x, w}, "z")[0];
  const int sum = graph.call(std::make_shared<Add>(), {y, z}, "sum")[0];
  graph.call(std::make_shared<Head>(), {sum, table, graph.feed(Feed::labels), graph.feed(Feed::weights)}, "loss");
  differentiate(graph);
  EXPECT_EQ(calls_of(graph, "add"), 2);  // x is read twice
  EXPECT_EQ(accumulations(graph), (std::map<std::string, int>{{"table", 2}, {"w", 2}}));
}

TEST(Differentiate, keeps_the_unit_of_every_forward_call) {
  Graph graph = residual_model(false);
  differentiate(graph);
  for (const Call& call : graph.calls())
    for (const int v : call.out)
      if (graph.value(v).kind == ValueKind::gradient) {
        EXPECT_EQ(call.unit, graph.param(graph.value(v).param).unit);
      }
}

TEST(Differentiate, keeps_phases_apart) {
  Graph graph = residual_model(true);
  const size_t forward = graph.calls().size();
  differentiate(graph);
  std::set<int> made_by_W;
  for (size_t i = 0; i < graph.calls().size(); ++i) {
    const Call& call = graph.calls()[i];
    EXPECT_EQ(call.pass == Pass::F, i < forward);
    for (const int v : call.in) {
      EXPECT_FALSE(made_by_W.contains(v)) << call.op->name() << " reads what a weight gradient made";
      EXPECT_NE(graph.value(v).kind, ValueKind::gradient);
    }
    for (const int v : call.out) {
      if (call.pass == Pass::W) {
        EXPECT_EQ(graph.value(v).kind, ValueKind::gradient);
        made_by_W.insert(v);
      }
    }
  }
}

TEST(Differentiate, goes_backward_unit_by_unit) {
  Graph graph = residual_model(false);
  const size_t forward = graph.calls().size();
  differentiate(graph);
  EXPECT_TRUE(std::is_sorted(graph.calls().begin() + static_cast<std::ptrdiff_t>(forward), graph.calls().end(),
                             [](const Call& a, const Call& b) { return a.unit > b.unit; }));
}

TEST(Differentiate, refuses_an_empty_graph) {
  Graph graph(precision_from("fp32"));
  EXPECT_EQ(message_of<InternalError>([&] { differentiate(graph); }), "differentiate: the graph has no calls");
}

}  // namespace
}  // namespace switchyard::ir
