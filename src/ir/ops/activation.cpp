#include "ir/ops/ops.hpp"

namespace switchyard::ir {

std::vector<int> Swiglu::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy, std::vector<int>&) const {
  return graph.call(std::make_shared<SwigluDx>(), {dy[0], call.in[0], call.in[1]}, "d gate up");
}

std::vector<int> Gelu::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy, std::vector<int>&) const {
  return graph.call(std::make_shared<GeluDx>(tanh_form_), {dy[0], call.in[0]}, "d " + graph.value(call.in[0]).name);
}

// The gradient of a sum goes to both terms as it is.
std::vector<int> Add::input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>&) const { return {dy[0], dy[0]}; }

}  // namespace switchyard::ir
