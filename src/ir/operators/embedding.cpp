#include "ir/operators/embedding.hpp"

namespace switchyard::ir {

std::vector<Type> Embedding::shape(std::span<const Type> in) const {
  return {tokens_by(in[1].dtype, in[1].shape.size[1], in[1].shape.alignment[1])};
}

std::vector<int> Embedding::input_gradient(Graph&, const Call& call, const std::vector<int>&, std::vector<int>&) const {
  return std::vector<int>(call.in.size(), -1);  // indices have none
}

void Embedding::weight_gradient(Graph& graph, const Call& call, const std::vector<int>& dy) const {
  const int accumulator = graph.gradient_value(graph.value(call.in[1]).param);
  graph.call_into(std::make_shared<EmbeddingDw>(), {dy[0], call.in[0]}, {accumulator}, "dw");
}

}  // namespace switchyard::ir
