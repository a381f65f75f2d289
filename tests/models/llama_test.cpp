#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fixtures.hpp"
#include "ir/operator.hpp"
#include "models/build.hpp"

namespace switchyard::models {
namespace {

const ir::Param* find_param(const ir::Graph& graph, const std::string& name) {
  for (const ir::Param& param : graph.params())
    if (param.name == name) return &param;
  return nullptr;
}

ir::Graph build_fp32(const config::ModelConfig& model) { return build(model, precision_from("fp32"), Output::loss); }

TEST(Llama, cuts_heads_in_whole_heads_and_query_heads_first_by_key_head) {
  const ir::Graph graph = build_fp32(fixture_model("llama-gqa"));  // 8 heads, 4 key/value heads of 8
  const ir::Param *q = find_param(graph, "model.layers.0.self_attn.q_proj.weight"),
                  *k = find_param(graph, "model.layers.0.self_attn.k_proj.weight"),
                  *o = find_param(graph, "model.layers.0.self_attn.o_proj.weight");
  EXPECT_EQ(q->shape.alignment[0], (std::vector<i64>{16, 8}));
  EXPECT_EQ(k->shape.alignment[0], (std::vector<i64>{8}));
  EXPECT_EQ(o->shape.alignment[1], (std::vector<i64>{16, 8}));
  using layout::DimRole;
  EXPECT_EQ(q->roles, (std::vector{DimRole::heads, DimRole::hidden}));
  EXPECT_EQ(k->roles, q->roles);
  EXPECT_EQ(o->roles, (std::vector{DimRole::hidden, DimRole::heads}));
}

TEST(Llama, keeps_the_weights_of_one_product_in_one_group) {
  const ir::Graph graph = build_fp32(fixture_model("llama-gqa"));
  const auto group = [&](const std::string& name) {
    return find_param(graph, "model.layers.1." + name + ".weight")->group;
  };
  EXPECT_EQ(group("self_attn.q_proj"), group("self_attn.v_proj"));
  EXPECT_EQ(group("mlp.gate_proj"), group("mlp.up_proj"));
  EXPECT_NE(group("self_attn.q_proj"), group("mlp.gate_proj"));
  EXPECT_EQ(group("mlp.down_proj"), "");
}

TEST(Llama, has_qwen2s_biases_on_q_k_and_v_only) {
  const ir::Graph graph = build_fp32(fixture_model("qwen2"));
  EXPECT_NE(find_param(graph, "model.layers.0.self_attn.v_proj.bias"), nullptr);
  EXPECT_EQ(find_param(graph, "model.layers.0.self_attn.o_proj.bias"), nullptr);
  EXPECT_EQ(find_param(graph, "model.layers.0.mlp.up_proj.bias"), nullptr);
}

TEST(Llama, norms_queries_and_keys_per_head_for_qwen3) {
  config::ModelConfig model = fixture_model("llama-gqa");
  model.qk_norm = true;
  const ir::Graph graph = build_fp32(model);
  ASSERT_NE(find_param(graph, "model.layers.0.self_attn.q_norm.weight"), nullptr);
  EXPECT_EQ(find_param(graph, "model.layers.0.self_attn.k_norm.weight")->shape.size, std::vector<i64>{8});
  // The norm comes before the rotation.
  const auto& calls = graph.calls();
  const auto rope = std::find_if(calls.begin(), calls.end(), [](const ir::Call& c) { return c.op->name() == "rope"; });
  const auto made =
      std::find_if(calls.begin(), calls.end(), [&](const ir::Call& c) { return c.out[0] == rope->in[0]; });
  EXPECT_EQ(made->op->name(), "rms_norm");
}

TEST(Llama, norms_what_blocks_add_and_all_queries_and_keys_for_olmo2) {
  const ir::Graph graph = build_fp32(fixture_model("olmo2"));  // 6 heads, 3 key/value heads of 8
  EXPECT_EQ(find_param(graph, "model.layers.0.input_layernorm.weight"), nullptr);
  const ir::Param *q = find_param(graph, "model.layers.0.self_attn.q_norm.weight"),
                  *k = find_param(graph, "model.layers.0.self_attn.k_norm.weight");
  EXPECT_EQ(q->shape.size, std::vector<i64>{48});
  EXPECT_EQ(k->shape.size, std::vector<i64>{24});
  EXPECT_EQ(q->shape.alignment[0], (std::vector<i64>{16, 8})) << "as its product's rows";
  for (const ir::Call& call : graph.calls()) {
    if (call.op->name() != "add") continue;
    const auto made = std::ranges::find_if(
        graph.calls(), [&](const ir::Call& earlier) { return !earlier.out.empty() && earlier.out[0] == call.in[1]; });
    EXPECT_EQ(made->op->name(), "rms_norm");
  }
}

TEST(Llama, rotates_by_document_with_dynamic_scaling_only) {
  config::ModelConfig model = fixture_model("llama-gqa");
  const auto by_document = [&] {
    std::set<bool> found;
    for (const ir::Graph graph = build_fp32(model); const ir::Call& call : graph.calls())
      if (call.op->rotary_head_dim() > 0) found.insert(call.op->rotates_by_document());
    return found;
  };
  EXPECT_EQ(by_document(), std::set{false});
  model.rope_scaling = {.factor = 2, .type = config::RopeScalingType::dynamic};
  EXPECT_EQ(by_document(), std::set{true});
  model.rope_scaling.factor = 0;
  EXPECT_EQ(by_document(), std::set{false});
}

TEST(Llama, uses_the_embedding_as_the_head_where_they_are_tied) {
  const ir::Graph graph = build_fp32(fixture_model("llama-tied"));
  EXPECT_EQ(find_param(graph, "lm_head.weight"), nullptr);
  EXPECT_EQ(graph.value(graph.calls().back().in[1]).name, "model.embed_tokens.weight");
}

TEST(Llama, starts_norms_at_one_and_matrices_at_random) {
  const ir::Graph graph = build_fp32(fixture_model("llama-gqa"));
  EXPECT_EQ(find_param(graph, "model.norm.weight")->init.constant, 1);
  EXPECT_EQ(find_param(graph, "model.norm.weight")->init.std, 0);
  EXPECT_EQ(find_param(graph, "lm_head.weight")->init.std, 0.02);
}

}  // namespace
}  // namespace switchyard::models
