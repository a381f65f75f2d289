#include "ir/operators/gelu.hpp"

namespace switchyard::ir {

std::vector<int> Gelu::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                      std::vector<int>&) const {
  return graph.call(std::make_shared<GeluDx>(tanh_form_), {dy[0], call.in[0]}, "d " + graph.value(call.in[0]).name);
}

}  // namespace switchyard::ir
