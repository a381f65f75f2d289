#include <fmt/format.h>

#include "ir/operators/add.hpp"
#include "ir/operators/embedding.hpp"
#include "ir/operators/linear.hpp"
#include "ir/operators/rms_norm.hpp"
#include "ir/operators/rope.hpp"
#include "ir/operators/swiglu.hpp"
#include "models/build.hpp"

namespace switchyard::models {
namespace {

using ir::Graph;
using layout::DimRole;
using layout::Role;

class LlamaBuilder {
 public:
  LlamaBuilder(Graph& graph, const config::ModelConfig& model)
      : graph_(graph), m_(model), olmo2_(model.family == config::Family::olmo2) {}

  void build(Output output) {
    graph_.set_unit(0);
    Product rows = product("model.embed_tokens.", 0, m_.vocab_size, m_.hidden_size);
    rows.row_role = DimRole::vocabulary;
    rows.row_cuts = {8, 1};
    const int table = add_weight(graph_, rows);
    int x_TH = graph_.call(std::make_shared<ir::Embedding>(), {graph_.feed(ir::Feed::ids), table}, "embedding")[0];
    graph_.set_role(x_TH, Role::residual);
    for (i64 layer = 0; layer < m_.layers; ++layer) x_TH = decoder_layer(x_TH, layer);
    const int last = static_cast<int>(m_.layers) + 1;
    graph_.set_unit(last);
    const int normed = norm(x_TH, "model.norm.weight", last, 0);
    rows.name = "lm_head.";
    rows.unit = last;
    const int head = m_.tied_embeddings ? table : add_weight(graph_, rows);
    finish(graph_, normed, head, output);
  }

 private:
  int decoder_layer(int x_TH, i64 layer) {
    const int unit = static_cast<int>(layer) + 1;
    const std::string at = fmt::format("model.layers.{}.", layer);
    graph_.set_unit(unit);
    if (olmo2_) {
      const int a_TH = to_stream(attention(x_TH, at + "self_attn.", unit));
      x_TH = residual(x_TH, norm(a_TH, at + "post_attention_layernorm.weight", unit, 0));
      const int b_TH = to_stream(feed_forward(x_TH, at + "mlp.", unit));
      return residual(x_TH, norm(b_TH, at + "post_feedforward_layernorm.weight", unit, 0));
    }
    x_TH = residual(x_TH, attention(norm(x_TH, at + "input_layernorm.weight", unit, 0), at + "self_attn.", unit));
    return residual(x_TH, feed_forward(norm(x_TH, at + "post_attention_layernorm.weight", unit, 0), at + "mlp.", unit));
  }

  int attention(int x_TH, const std::string& at, int unit) {
    const i64 D = m_.head_dim, queries = m_.heads * D, keys = m_.kv_heads * D, per_key = m_.heads / m_.kv_heads * D;
    Product q = product(at + "q_proj.", unit, queries, m_.hidden_size),
            k = product(at + "k_proj.", unit, keys, m_.hidden_size);
    q.row_role = k.row_role = DimRole::heads;
    q.column_role = k.column_role = DimRole::hidden;
    q.row_cuts = {per_key, D};
    k.row_cuts = {D};
    q.group = k.group = at + "qkv";
    Product v = k;
    v.name = at + "v_proj.";
    const std::vector<int> in = operands(x_TH, {q, k, v}, m_.qkv_bias);
    const std::vector<int> qkv = in_block(graph_.call(std::make_shared<ir::Linear>(3, m_.qkv_bias), in, "qkv"));
    int q_TN = qkv[0], k_TK = qkv[1];
    if (m_.qk_norm) {
      q_TN = in_block({norm(q_TN, at + "q_norm.weight", unit, D)})[0];
      k_TK = in_block({norm(k_TK, at + "k_norm.weight", unit, D)})[0];
    }
    if (olmo2_) {
      q_TN = norm_of_heads(q_TN, at + "q_norm.weight", unit, q);
      k_TK = norm_of_heads(k_TK, at + "k_norm.weight", unit, k);
    }
    q_TN = rope(q_TN, "q");
    k_TK = rope(k_TK, "k");
    const int o_TN = graph_.call(attention_operator(m_, 0), {q_TN, k_TK, qkv[2]}, "attention")[0];
    graph_.set_role(o_TN, Role::block);
    Product o = product(at + "o_proj.", unit, m_.hidden_size, queries);
    o.row_role = DimRole::hidden;
    o.column_role = DimRole::heads;
    o.column_cuts = q.row_cuts;
    const std::vector<int> out = operands(o_TN, {o}, m_.o_bias);
    return graph_.call(std::make_shared<ir::Linear>(1, m_.o_bias), out, "attention out")[0];
  }

  int feed_forward(int x_TH, const std::string& at, int unit) {
    Product gate = product(at + "gate_proj.", unit, m_.ffn_size, m_.hidden_size);
    gate.row_role = DimRole::ffn;
    gate.column_role = DimRole::hidden;
    gate.row_cuts = {8, 1};
    gate.group = at + "gate_up";
    Product up = gate;
    up.name = at + "up_proj.";
    const std::vector<int> in = operands(x_TH, {gate, up}, m_.mlp_bias);
    const std::vector<int> gate_up = in_block(graph_.call(std::make_shared<ir::Linear>(2, m_.mlp_bias), in, "gate up"));
    const int h_TF = in_block(graph_.call(std::make_shared<ir::Swiglu>(), gate_up, "swiglu"))[0];
    Product down = product(at + "down_proj.", unit, m_.hidden_size, m_.ffn_size);
    down.row_role = DimRole::hidden;
    down.column_role = DimRole::ffn;
    down.column_cuts = gate.row_cuts;
    const std::vector<int> out = operands(h_TF, {down}, m_.mlp_bias);
    return graph_.call(std::make_shared<ir::Linear>(1, m_.mlp_bias), out, "feed-forward out")[0];
  }

  // The result of a block and its sum with the residual stream have the stream's layout.
  int residual(int x_TH, int block_TH) {
    to_stream(block_TH);
    const int sum = graph_.call(std::make_shared<ir::Add>(), {x_TH, block_TH}, "residual")[0];
    graph_.set_role(sum, Role::residual);
    return sum;
  }

  int to_stream(int value_TH) {
    graph_.set_role(value_TH, Role::residual);
    return value_TH;
  }

  std::vector<int> in_block(std::vector<int> values) {
    for (const int value : values) graph_.set_role(value, Role::block);
    return values;
  }

  int norm(int x, const std::string& name, int unit, i64 group) {
    const int weight = group == 0 ? add_vector(graph_, name, unit, m_.hidden_size, DimRole::norm, 1)
                                  : add_vector(graph_, name, unit, group, DimRole::none, 1);
    return graph_.call(std::make_shared<ir::RmsNorm>(m_.norm_eps, group), {x, weight}, "norm")[0];
  }

  // A norm over all heads that a product makes, whose weight is cut as they are.
  int norm_of_heads(int x, const std::string& name, int unit, const Product& heads) {
    const int weight = graph_.add_param({.name = name,
                                         .shape = {{heads.rows}, {heads.row_cuts}},
                                         .unit = unit,
                                         .roles = {heads.row_role},
                                         .init = {.constant = 1}});
    return in_block(graph_.call(std::make_shared<ir::RmsNorm>(m_.norm_eps, 0), {x, weight}, "norm"))[0];
  }

  int rope(int x, const std::string& name) {
    const auto op = std::make_shared<ir::Rope>(m_.head_dim, false, by_document(m_.rope_scaling));
    return in_block(graph_.call(op, {x, graph_.feed(ir::Feed::positions)}, name))[0];
  }

  Product product(const std::string& name, int unit, i64 rows, i64 columns) const {
    return {.name = name, .unit = unit, .rows = rows, .columns = columns, .std = m_.initializer_range};
  }

  // What ir::Linear takes: x, the weights, and their biases if they have some.
  std::vector<int> operands(int x, const std::vector<Product>& products, bool biases) {
    std::vector<int> in = {x};
    for (const Product& product : products) in.push_back(add_weight(graph_, product));
    if (!biases) return in;
    for (const Product& product : products) in.push_back(add_bias(graph_, product));
    return in;
  }

  Graph& graph_;
  const config::ModelConfig& m_;
  bool olmo2_;  // norms behind the blocks instead of before them, and of all queries and all keys
};

}  // namespace

void build_llama(Graph& graph, const config::ModelConfig& model, Output output) {
  LlamaBuilder(graph, model).build(output);
}

}  // namespace switchyard::models
