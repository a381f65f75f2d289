#include "models/build.hpp"

#include "base/errors.hpp"
#include "ir/ops/ops.hpp"

namespace switchyard::models {

std::shared_ptr<const ir::Operator> attention_operator(const config::ModelConfig& model, int site) {
  if (model.attention == config::AttentionKind::fused) return std::make_shared<ir::Attention>(model.head_dim, model.kv_heads);
  return std::make_shared<ir::UnfusedAttention>(model.head_dim, model.kv_heads, model.dropout, site);
}

void finish(ir::Graph& graph, int hidden, int head_weight, Output output) {
  if (output == Output::logits) {
    graph.call(std::make_shared<ir::Linear>(1, false), {hidden, head_weight}, "logits");
    return;
  }
  graph.call(std::make_shared<ir::Head>(), {hidden, head_weight, graph.feed(ir::Feed::labels), graph.feed(ir::Feed::weights)}, "loss");
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
