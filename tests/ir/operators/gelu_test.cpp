#include "ir/operators/gelu.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

TEST(Gelu, passes_the_form_on_to_its_gradient) {
  Graph graph(precision_from("fp32"));
  const int x = graph.add_param({"x", {{4, 4}, {}}, 0, "", {}, {}, {}});
  graph.call(std::make_shared<Gelu>(false), {x}, "y");
  const Call call = graph.calls()[0];
  std::vector<int> existing(1, -1);
  EXPECT_EQ(Gelu(false).input_gradient(graph, call, {x}, existing).size(), 1u);
  EXPECT_FALSE(dynamic_cast<const GeluDx&>(*graph.calls().back().op).tanh_form());
  EXPECT_EQ(graph.calls().back().in, (std::vector<int>{x, x}));
}

}  // namespace
}  // namespace switchyard::ir
