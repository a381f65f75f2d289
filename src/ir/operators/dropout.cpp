#include "ir/operators/dropout.hpp"

namespace switchyard::ir {

std::vector<int> Dropout::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                         std::vector<int>&) const {
  return graph.call(std::make_shared<DropoutDx>(p_), {dy[0], call.out[1]}, "d " + graph.value(call.in[0]).name);
}

}  // namespace switchyard::ir
