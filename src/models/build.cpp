#include "models/build.hpp"

#include "base/errors.hpp"
#include "ir/operators/attention.hpp"
#include "ir/operators/head.hpp"
#include "ir/operators/linear.hpp"
#include "ir/operators/unfused_attention.hpp"

namespace switchyard::models {

std::shared_ptr<const ir::Operator> attention_operator(const config::ModelConfig& model, int site) {
  if (model.attention == config::AttentionKind::fused)
    return std::make_shared<ir::Attention>(model.head_dim, model.kv_heads);
  return std::make_shared<ir::UnfusedAttention>(model.head_dim, model.kv_heads, model.dropout, site);
}

namespace {

std::string in_file(const Product& product, const char* part) {
  return (product.file.name.empty() ? product.name : product.file.name) + part;
}

}  // namespace

int add_weight(ir::Graph& graph, const Product& product) {
  return graph.add_param({.name = product.name + "weight",
                          .shape = {{product.rows, product.columns}, {product.row_cuts, product.column_cuts}},
                          .unit = product.unit,
                          .group = product.group,
                          .roles = {product.row_role, product.column_role},
                          .init = {.std = product.std},
                          .file = {in_file(product, "weight"), product.file.transposed, product.file.first}});
}

int add_bias(ir::Graph& graph, const Product& product) {
  return graph.add_param({.name = product.name + "bias",
                          .shape = {{product.rows}, {product.row_cuts}},
                          .unit = product.unit,
                          .group = product.group.empty() ? "" : product.group + "_bias",
                          .roles = {product.row_role},
                          .file = {in_file(product, "bias"), false, product.file.first}});
}

int add_vector(ir::Graph& graph, const std::string& name, int unit, i64 size, layout::DimRole role, double constant) {
  return graph.add_param(
      {.name = name, .shape = {{size}, {{}}}, .unit = unit, .roles = {role}, .init = {.constant = constant}});
}

void finish(ir::Graph& graph, int hidden, int head_weight, Output output) {
  if (output == Output::logits) {
    graph.call(std::make_shared<ir::Linear>(1, false), {hidden, head_weight}, "logits");
    return;
  }
  graph.call(std::make_shared<ir::Head>(),
             {hidden, head_weight, graph.feed(ir::Feed::labels), graph.feed(ir::Feed::weights)}, "loss");
}

ir::Graph build(const config::ModelConfig& config, Precision precision, Output output) {
  config::ModelConfig model = config;
  if (output == Output::logits) model.dropout = 0;
  ir::Graph graph(precision);
  if (model.family == config::Family::gpt2)
    build_gpt2(graph, model, output);
  else
    build_llama(graph, model, output);
  return graph;
}

}  // namespace switchyard::models
