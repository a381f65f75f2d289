#include "ir/operators/swiglu.hpp"

namespace switchyard::ir {

std::vector<int> Swiglu::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                        std::vector<int>&) const {
  return graph.call(std::make_shared<SwigluDx>(), {dy[0], call.in[0], call.in[1]}, "d gate up");
}

// The gate, its sigmoid, and the other input.
i64 Swiglu::temporaries(std::span<const Type> in, std::span<const Type>, i64 tokens) const {
  return 3 * wide_bytes(in[0], tokens);
}

// The gate, its sigmoid, the gradient, that of the gate so far, and the other input.
i64 SwigluDx::temporaries(std::span<const Type> in, std::span<const Type>, i64 tokens) const {
  return 5 * wide_bytes(in[0], tokens);
}

}  // namespace switchyard::ir
