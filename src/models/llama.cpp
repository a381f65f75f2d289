#include <fmt/format.h>

#include "ir/ops/ops.hpp"
#include "models/build.hpp"

namespace switchyard::models {
namespace {

using ir::Graph;
using ir::Param;

class LlamaBuilder {
 public:
  LlamaBuilder(Graph& graph, const config::ModelConfig& model) : graph_(graph), m_(model) {}

  void build(Output output) {
    graph_.set_unit(0);
    const int table = matrix("model.embed_tokens.weight", 0, "", m_.vocab_size, m_.hidden_size, {8, 1}, {}, 0);
    int x_TH = graph_.call(std::make_shared<ir::Embedding>(), {graph_.feed(ir::Feed::ids), table}, "embedding")[0];
    graph_.set_role(x_TH, "residual");
    for (i64 layer = 0; layer < m_.layers; ++layer) x_TH = decoder_layer(x_TH, layer);
    const int last = static_cast<int>(m_.layers) + 1;
    graph_.set_unit(last);
    const int normed = norm(x_TH, "model.norm.weight", last, 0);
    const int head = m_.tied_embeddings ? table : matrix("lm_head.weight", last, "", m_.vocab_size, m_.hidden_size, {8, 1}, {}, 0);
    finish(graph_, normed, head, output);
  }

 private:
  int decoder_layer(int x_TH, i64 layer) {
    const int unit = static_cast<int>(layer) + 1;
    const std::string at = fmt::format("model.layers.{}.", layer);
    graph_.set_unit(unit);
    x_TH = residual(x_TH, attention(norm(x_TH, at + "input_layernorm.weight", unit, 0), at + "self_attn.", unit));
    return residual(x_TH, feed_forward(norm(x_TH, at + "post_attention_layernorm.weight", unit, 0), at + "mlp.", unit));
  }

  int attention(int x_TH, const std::string& at, int unit) {
    const i64 D = m_.head_dim, queries = m_.heads * D, keys = m_.kv_heads * D, per_key = m_.heads / m_.kv_heads * D;
    const std::vector<i64> query_cuts = {per_key, D}, key_cuts = {D};
    const std::string group = at + "qkv";
    std::vector<int> in = {x_TH, matrix(at + "q_proj.weight", unit, group, queries, m_.hidden_size, query_cuts, {}, 0),
                           matrix(at + "k_proj.weight", unit, group, keys, m_.hidden_size, key_cuts, {}, 0, m_.kv_heads),
                           matrix(at + "v_proj.weight", unit, group, keys, m_.hidden_size, key_cuts, {}, 0, m_.kv_heads)};
    if (m_.qkv_bias) {
      in.push_back(bias(at + "q_proj.bias", unit, queries, query_cuts, 0));
      in.push_back(bias(at + "k_proj.bias", unit, keys, key_cuts, m_.kv_heads));
      in.push_back(bias(at + "v_proj.bias", unit, keys, key_cuts, m_.kv_heads));
    }
    const std::vector<int> qkv = graph_.call(std::make_shared<ir::Linear>(3, m_.qkv_bias), in, "qkv");
    int q_TN = qkv[0], k_TK = qkv[1];
    if (m_.qk_norm) {
      q_TN = norm(q_TN, at + "q_norm.weight", unit, D);
      k_TK = norm(k_TK, at + "k_norm.weight", unit, D);
    }
    q_TN = rope(q_TN, "q");
    k_TK = rope(k_TK, "k");
    const int o_TN = graph_.call(attention_operator(m_, 0), {q_TN, k_TK, qkv[2]}, "attention")[0];
    std::vector<int> out = {o_TN, matrix(at + "o_proj.weight", unit, "", m_.hidden_size, queries, {}, query_cuts, 1)};
    if (m_.o_bias) out.push_back(vector(at + "o_proj.bias", unit, m_.hidden_size, 0));
    return graph_.call(std::make_shared<ir::Linear>(1, m_.o_bias), out, "attention out")[0];
  }

  int feed_forward(int x_TH, const std::string& at, int unit) {
    const std::vector<i64> cuts = {8, 1};
    const std::string group = at + "gate_up";
    std::vector<int> in = {x_TH, matrix(at + "gate_proj.weight", unit, group, m_.ffn_size, m_.hidden_size, cuts, {}, 0),
                           matrix(at + "up_proj.weight", unit, group, m_.ffn_size, m_.hidden_size, cuts, {}, 0)};
    if (m_.mlp_bias) {
      in.push_back(bias(at + "gate_proj.bias", unit, m_.ffn_size, cuts, 0));
      in.push_back(bias(at + "up_proj.bias", unit, m_.ffn_size, cuts, 0));
    }
    const std::vector<int> gate_up = graph_.call(std::make_shared<ir::Linear>(2, m_.mlp_bias), in, "gate up");
    const int h_TF = graph_.call(std::make_shared<ir::Swiglu>(), gate_up, "swiglu")[0];
    std::vector<int> out = {h_TF, matrix(at + "down_proj.weight", unit, "", m_.hidden_size, m_.ffn_size, {}, cuts, 1)};
    if (m_.mlp_bias) out.push_back(vector(at + "down_proj.bias", unit, m_.hidden_size, 0));
    return graph_.call(std::make_shared<ir::Linear>(1, m_.mlp_bias), out, "feed-forward out")[0];
  }

  // The result of a block, and its sum with the stream, lie where the stream does.
  int residual(int x_TH, int block_TH) {
    graph_.set_role(block_TH, "residual");
    const int sum = graph_.call(std::make_shared<ir::Add>(), {x_TH, block_TH}, "residual")[0];
    graph_.set_role(sum, "residual");
    return sum;
  }

  int norm(int x, const std::string& name, int unit, i64 group) {
    const int weight = vector(name, unit, group == 0 ? m_.hidden_size : group, 1);
    return graph_.call(std::make_shared<ir::RmsNorm>(m_.norm_eps, group), {x, weight}, "norm")[0];
  }

  int rope(int x, const std::string& name) {
    return graph_.call(std::make_shared<ir::Rope>(m_.head_dim, false), {x, graph_.feed(ir::Feed::positions)}, name)[0];
  }

  int matrix(const std::string& name, int unit, const std::string& group, i64 rows, i64 columns, std::vector<i64> row_cuts,
             std::vector<i64> column_cuts, int cut_dim, i64 most_ways = 0) {
    return graph_.add_param({name, {{rows, columns}, {std::move(row_cuts), std::move(column_cuts)}}, unit, group, cut_dim, most_ways,
                             {m_.initializer_range, 0}, {}});
  }

  int bias(const std::string& name, int unit, i64 size, std::vector<i64> cuts, i64 most_ways) {
    return graph_.add_param({name, {{size}, {std::move(cuts)}}, unit, "", 0, most_ways, {0, 0}, {}});
  }

  int vector(const std::string& name, int unit, i64 size, double constant) {
    return graph_.add_param({name, {{size}, {{}}}, unit, "", -1, 0, {0, constant}, {}});
  }

  Graph& graph_;
  const config::ModelConfig& m_;
};

}  // namespace

void build_llama(Graph& graph, const config::ModelConfig& model, Output output) { LlamaBuilder(graph, model).build(output); }

}  // namespace switchyard::models
