#include <fmt/format.h>

#include <cmath>

#include "ir/ops/ops.hpp"
#include "models/build.hpp"

namespace switchyard::models {
namespace {

using ir::Graph;

class Gpt2Builder {
 public:
  Gpt2Builder(Graph& graph, const config::ModelConfig& model) : graph_(graph), m_(model) {}

  void build(Output output) {
    graph_.set_unit(0);
    const int tokens =
        graph_.add_param({"transformer.wte.weight", {{m_.vocab_size, m_.hidden_size}, {{8, 1}, {}}}, 0, "", 0, 0, normal(), {}});
    const int positions =
        graph_.add_param({"transformer.wpe.weight", {{m_.max_positions, m_.hidden_size}, {{}, {}}}, 0, "", -1, 0, normal(), {}});
    const int word_TH = graph_.call(std::make_shared<ir::Embedding>(), {graph_.feed(ir::Feed::ids), tokens}, "word")[0];
    graph_.set_role(word_TH, "residual");
    const int place_TH = graph_.call(std::make_shared<ir::Embedding>(), {graph_.feed(ir::Feed::positions), positions}, "position")[0];
    graph_.set_role(place_TH, "residual");
    int x_TH = drop(add(word_TH, place_TH));
    for (i64 layer = 0; layer < m_.layers; ++layer) x_TH = block(x_TH, layer);
    const int last = static_cast<int>(m_.layers) + 1;
    graph_.set_unit(last);
    const int normed = norm(x_TH, "transformer.ln_f.", last);
    const int head =
        m_.tied_embeddings
            ? tokens
            : graph_.add_param({"lm_head.weight", {{m_.vocab_size, m_.hidden_size}, {{8, 1}, {}}}, last, "", 0, 0, normal(), {}});
    finish(graph_, normed, head, output);
  }

 private:
  int block(int x_TH, i64 layer) {
    const int unit = static_cast<int>(layer) + 1;
    const std::string at = fmt::format("transformer.h.{}.", layer);
    const i64 D = m_.head_dim, H = m_.hidden_size;
    graph_.set_unit(unit);

    const int a_TH = norm(x_TH, at + "ln_1.", unit);
    // c_attn packs q, k, v along its output: three parameters here, one tensor in files.
    std::vector<int> in = {a_TH}, biases;
    static constexpr const char* kParts[] = {"q", "k", "v"};
    for (int part = 0; part < 3; ++part) {
      const std::string name = fmt::format("{}attn.c_attn.{}.", at, kParts[part]);
      const i64 most_ways = part == 0 ? 0 : m_.kv_heads;
      in.push_back(conv(name + "weight", at + "attn.c_attn.weight", part * H, unit, at + "qkv", H, H, {D}, {}, 0, 1, most_ways));
      biases.push_back(bias(name + "bias", at + "attn.c_attn.bias", part * H, unit, H, {D}, 0, most_ways));
    }
    in.insert(in.end(), biases.begin(), biases.end());
    const std::vector<int> qkv = graph_.call(std::make_shared<ir::Linear>(3, true), in, "qkv");
    const int o_TH = graph_.call(attention_operator(m_, ++sites_), qkv, "attention")[0];
    const int projected = project(o_TH, at + "attn.c_proj.", unit, H, {D});
    x_TH = add(x_TH, projected);

    const int b_TH = norm(x_TH, at + "ln_2.", unit);
    const std::string fc = at + "mlp.c_fc.";
    const std::vector<i64> cuts = {8, 1};
    const int up_TF = graph_.call(std::make_shared<ir::Linear>(1, true),
                                  {b_TH, conv(fc + "weight", fc + "weight", 0, unit, "", m_.ffn_size, H, cuts, {}, 0, 1),
                                   bias(fc + "bias", fc + "bias", 0, unit, m_.ffn_size, cuts, 0)},
                                  "fc")[0];
    const int h_TF = graph_.call(std::make_shared<ir::Gelu>(m_.gelu_tanh), {up_TF}, "gelu")[0];
    return add(x_TH, project(h_TF, at + "mlp.c_proj.", unit, m_.ffn_size, cuts));
  }

  // Back to the stream; initial weights are smaller by sqrt(2 layers), as in GPT-2.
  int project(int x, const std::string& at, int unit, i64 features, const std::vector<i64>& cuts) {
    const double scale = 1 / std::sqrt(2.0 * static_cast<double>(m_.layers));
    const int y = graph_.call(std::make_shared<ir::Linear>(1, true),
                              {x, conv(at + "weight", at + "weight", 0, unit, "", m_.hidden_size, features, {}, cuts, 1, scale),
                               bias(at + "bias", at + "bias", 0, unit, m_.hidden_size, {}, -1)},
                              "projection")[0];
    graph_.set_role(y, "residual");
    return drop(y);
  }

  int drop(int x) {
    if (m_.dropout == 0) return x;
    const int y = graph_.call(std::make_shared<ir::Dropout>(m_.dropout, ++sites_), {x}, "dropout")[0];
    graph_.set_role(y, "residual");
    return y;
  }

  int add(int a, int b) {
    const int sum = graph_.call(std::make_shared<ir::Add>(), {a, b}, "residual")[0];
    graph_.set_role(sum, "residual");
    return sum;
  }

  int norm(int x, const std::string& at, int unit) {
    const int weight = graph_.add_param({at + "weight", {{m_.hidden_size}, {{}}}, unit, "", -1, 0, {0, 1}, {}});
    const int shift = graph_.add_param({at + "bias", {{m_.hidden_size}, {{}}}, unit, "", -1, 0, {0, 0}, {}});
    return graph_.call(std::make_shared<ir::LayerNorm>(m_.norm_eps), {x, weight, shift}, "norm")[0];
  }

  int conv(const std::string& name, const std::string& file, i64 first, int unit, const std::string& group, i64 rows, i64 columns,
           std::vector<i64> row_cuts, std::vector<i64> column_cuts, int cut_dim, double scale, i64 most_ways = 0) {
    return graph_.add_param({name,
                             {{rows, columns}, {std::move(row_cuts), std::move(column_cuts)}},
                             unit,
                             group,
                             cut_dim,
                             most_ways,
                             {m_.initializer_range * scale, 0},
                             {file, true, first}});
  }

  int bias(const std::string& name, const std::string& file, i64 first, int unit, i64 size, std::vector<i64> cuts, int cut_dim,
           i64 most_ways = 0) {
    return graph_.add_param({name, {{size}, {std::move(cuts)}}, unit, "", cut_dim, most_ways, {0, 0}, {file, false, first}});
  }

  ir::Init normal() const { return {m_.initializer_range, 0}; }

  Graph& graph_;
  const config::ModelConfig& m_;
  int sites_ = 0;  // of dropout
};

}  // namespace

void build_gpt2(Graph& graph, const config::ModelConfig& model, Output output) { Gpt2Builder(graph, model).build(output); }

}  // namespace switchyard::models
