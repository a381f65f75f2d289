#include <fmt/format.h>

#include <cmath>

#include "ir/operators/add.hpp"
#include "ir/operators/dropout.hpp"
#include "ir/operators/embedding.hpp"
#include "ir/operators/gelu.hpp"
#include "ir/operators/layer_norm.hpp"
#include "ir/operators/linear.hpp"
#include "models/build.hpp"

namespace switchyard::models {
namespace {

using ir::Graph;
using layout::DimRole;
using layout::Role;

class Gpt2Builder {
 public:
  Gpt2Builder(Graph& graph, const config::ModelConfig& model) : graph_(graph), m_(model) {}

  void build(Output output) {
    graph_.set_unit(0);
    const double std = m_.initializer_range;
    const Product table{.name = "transformer.wte.",
                        .rows = m_.vocab_size,
                        .columns = m_.hidden_size,
                        .row_role = DimRole::vocabulary,
                        .row_cuts = {8, 1},
                        .std = std};
    const int tokens = add_weight(graph_, table);
    const int positions = add_weight(
        graph_, {.name = "transformer.wpe.", .rows = m_.max_positions, .columns = m_.hidden_size, .std = std});
    const int word_TH = graph_.call(std::make_shared<ir::Embedding>(), {graph_.feed(ir::Feed::ids), tokens}, "word")[0];
    graph_.set_role(word_TH, Role::residual);
    const int place_TH =
        graph_.call(std::make_shared<ir::Embedding>(), {graph_.feed(ir::Feed::positions), positions}, "position")[0];
    graph_.set_role(place_TH, Role::residual);
    int x_TH = drop(add(word_TH, place_TH));
    for (i64 layer = 0; layer < m_.layers; ++layer) x_TH = block(x_TH, layer);
    const int last = static_cast<int>(m_.layers) + 1;
    graph_.set_unit(last);
    const int normed = norm(x_TH, "transformer.ln_f.", last);
    Product of_head = table;
    of_head.name = "lm_head.";
    of_head.unit = last;
    const int head = m_.tied_embeddings ? tokens : add_weight(graph_, of_head);
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
      Product product = conv(fmt::format("{}attn.c_attn.{}.", at, kParts[part]), unit, H, H);
      product.row_role = DimRole::heads;
      product.column_role = DimRole::hidden;
      product.row_cuts = {D};
      product.group = at + "qkv";
      product.file.name = at + "attn.c_attn.";
      product.file.first = part * H;
      in.push_back(add_weight(graph_, product));
      biases.push_back(add_bias(graph_, product));
    }
    in.insert(in.end(), biases.begin(), biases.end());
    const std::vector<int> qkv = graph_.call(std::make_shared<ir::Linear>(3, true), in, "qkv");
    for (const int value : qkv) graph_.set_role(value, Role::block);
    const int o_TH = graph_.call(attention_operator(m_, ++sites_), qkv, "attention")[0];
    graph_.set_role(o_TH, Role::block);
    Product out = conv(at + "attn.c_proj.", unit, H, H);
    out.row_role = DimRole::hidden;
    out.column_role = DimRole::heads;
    out.column_cuts = {D};
    x_TH = add(x_TH, project(o_TH, out));

    const int b_TH = norm(x_TH, at + "ln_2.", unit);
    Product fc = conv(at + "mlp.c_fc.", unit, m_.ffn_size, H);
    fc.row_role = DimRole::ffn;
    fc.column_role = DimRole::hidden;
    fc.row_cuts = {8, 1};
    const int up_TF = linear(b_TH, fc, "fc");
    const int h_TF = graph_.call(std::make_shared<ir::Gelu>(m_.gelu_tanh), {up_TF}, "gelu")[0];
    for (const int value : {up_TF, h_TF}) graph_.set_role(value, Role::block);
    Product down = conv(at + "mlp.c_proj.", unit, H, m_.ffn_size);
    down.row_role = DimRole::hidden;
    down.column_role = DimRole::ffn;
    down.column_cuts = {8, 1};
    return add(x_TH, project(h_TF, down));
  }

  // GPT-2's files have weights [in, out].
  Product conv(const std::string& name, int unit, i64 rows, i64 columns) const {
    return {.name = name,
            .unit = unit,
            .rows = rows,
            .columns = columns,
            .std = m_.initializer_range,
            .file = {"", true, 0}};
  }

  int linear(int x, const Product& product, const std::string& name) {
    const int weight = add_weight(graph_, product), bias = add_bias(graph_, product);
    return graph_.call(std::make_shared<ir::Linear>(1, true), {x, weight, bias}, name)[0];
  }

  // Back to the stream; initial weights are smaller by sqrt(2 layers), as in GPT-2.
  int project(int x, Product product) {
    product.std *= 1 / std::sqrt(2.0 * static_cast<double>(m_.layers));
    const int y = linear(x, product, "projection");
    graph_.set_role(y, Role::residual);
    return drop(y);
  }

  int drop(int x) {
    if (m_.dropout == 0) return x;
    const int y = graph_.call(std::make_shared<ir::Dropout>(m_.dropout, ++sites_), {x}, "dropout")[0];
    graph_.set_role(y, Role::residual);
    return y;
  }

  int add(int a, int b) {
    const int sum = graph_.call(std::make_shared<ir::Add>(), {a, b}, "residual")[0];
    graph_.set_role(sum, Role::residual);
    return sum;
  }

  int norm(int x, const std::string& at, int unit) {
    const int weight = add_vector(graph_, at + "weight", unit, m_.hidden_size, DimRole::norm, 1);
    const int shift = add_vector(graph_, at + "bias", unit, m_.hidden_size, DimRole::norm, 0);
    return graph_.call(std::make_shared<ir::LayerNorm>(m_.norm_eps), {x, weight, shift}, "norm")[0];
  }

  Graph& graph_;
  const config::ModelConfig& m_;
  int sites_ = 0;  // sites of dropout so far
};

}  // namespace

void build_gpt2(Graph& graph, const config::ModelConfig& model, Output output) {
  Gpt2Builder(graph, model).build(output);
}

}  // namespace switchyard::models
