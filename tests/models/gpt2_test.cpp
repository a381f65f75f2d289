#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "fixtures.hpp"
#include "ir/operators/gelu.hpp"
#include "models/build.hpp"

namespace switchyard::models {
namespace {

ir::Graph gpt2() { return build(fixture_model("gpt2"), precision_from("fp32"), Output::loss); }

const ir::Param& param(const ir::Graph& graph, std::string_view name) {
  return *std::find_if(graph.params().begin(), graph.params().end(),
                       [&](const ir::Param& p) { return p.name == name; });
}

TEST(Gpt2, takes_q_k_and_v_from_thirds_of_a_transposed_tensor) {
  const ir::Graph graph = gpt2();
  i64 first = 0;
  for (const char* part : {"q", "k", "v"}) {
    const ir::Param& weight = param(graph, std::string("transformer.h.1.attn.c_attn.") + part + ".weight");
    EXPECT_EQ(weight.file.name, "transformer.h.1.attn.c_attn.weight");
    EXPECT_TRUE(weight.file.transposed);
    EXPECT_EQ(weight.file.first, first);
    const ir::Param& bias = param(graph, std::string("transformer.h.1.attn.c_attn.") + part + ".bias");
    EXPECT_EQ(bias.file.name, "transformer.h.1.attn.c_attn.bias");
    EXPECT_FALSE(bias.file.transposed);
    EXPECT_EQ(bias.file.first, first);
    first += 40;
  }
}

TEST(Gpt2, has_rows_of_heads_in_queries_keys_and_values) {
  const ir::Graph graph = gpt2();
  for (const char* part : {"q", "k", "v"})
    for (const char* what : {"weight", "bias"})
      EXPECT_EQ(param(graph, fmt::format("transformer.h.0.attn.c_attn.{}.{}", part, what)).roles[0],
                layout::DimRole::heads);
}

TEST(Gpt2, adds_learned_positions_to_the_words) {
  const ir::Graph graph = gpt2();
  EXPECT_EQ(graph.calls()[0].op->name(), "embedding");
  EXPECT_EQ(graph.value(graph.calls()[1].in[0]).feed, ir::Feed::positions);
  EXPECT_EQ(graph.calls()[2].op->name(), "add");
  EXPECT_EQ(param(graph, "transformer.wpe.weight").roles, (std::vector<layout::DimRole>(2, layout::DimRole::none)));
}

TEST(Gpt2, cuts_biases_with_their_rows_and_leaves_those_of_projections_whole) {
  const ir::Graph graph = gpt2();
  using layout::DimRole;
  EXPECT_EQ(param(graph, "transformer.h.0.mlp.c_fc.bias").roles, (std::vector{DimRole::ffn}));
  EXPECT_EQ(param(graph, "transformer.h.0.mlp.c_proj.bias").roles, (std::vector{DimRole::hidden}));
  EXPECT_EQ(param(graph, "transformer.h.0.mlp.c_proj.weight").roles, (std::vector{DimRole::hidden, DimRole::ffn}));
}

TEST(Gpt2, starts_projections_smaller_with_depth) {
  const ir::Graph graph = gpt2();
  EXPECT_DOUBLE_EQ(param(graph, "transformer.h.0.attn.c_proj.weight").init.std, 0.02 / std::sqrt(6.0));
  EXPECT_DOUBLE_EQ(param(graph, "transformer.h.0.mlp.c_fc.weight").init.std, 0.02);
}

TEST(Gpt2, is_built_with_either_form_of_gelu) {
  config::ModelConfig model = fixture_model("gpt2");
  for (const bool tanh : {true, false}) {
    model.gelu_tanh = tanh;
    const ir::Graph graph = build(model, precision_from("fp32"), Output::loss);
    const auto gelu = std::find_if(graph.calls().begin(), graph.calls().end(),
                                   [](const ir::Call& c) { return c.op->name() == "gelu"; });
    EXPECT_EQ(dynamic_cast<const ir::Gelu&>(*gelu->op).tanh_form(), tanh);
  }
}

}  // namespace
}  // namespace switchyard::models
