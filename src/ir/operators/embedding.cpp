#include "ir/operators/embedding.hpp"

#include <algorithm>

#include "base/allocation.hpp"

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

// A row for each token is read of the table, and read and written of its gradient; the others stay where they are.
Cost Embedding::cost(std::span<const Type> in, std::span<const Type> out) const {
  return memory_bound(std::vector{in[0], out[0], out[0]}, {});
}

Cost EmbeddingDw::cost(std::span<const Type> in, std::span<const Type> out) const {
  const Type row = tokens_by(out[0].dtype, out[0].shape.size[1], {});
  return memory_bound(std::vector{in[0], in[1], row, row}, {});
}

// Numbers of rows; the same within the table, and the rows, or which of them other ranks have, in three steps.
i64 Embedding::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  const i64 numbers = copy_bytes(in[0], tokens, DType::i64);
  return numbers + std::max(numbers + copy_bytes(out[0], tokens, out[0].dtype), 3 * allocated(tokens));
}

// The same of the gradients, in the accumulator's dtype, and which of them other ranks' rows have.
i64 EmbeddingDw::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 2 * copy_bytes(in[1], tokens, DType::i64) + copy_bytes(in[0], tokens, out[0].dtype) + allocated(tokens);
}

}  // namespace switchyard::ir
