#include "ir/operators/rope.hpp"

namespace switchyard::ir {

std::vector<int> Rope::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                      std::vector<int>&) const {
  return {graph.call(std::make_shared<Rope>(head_dim_, !inverse_, by_document_), {dy[0], call.in[1]},
                     "d " + graph.value(call.in[0]).name)[0],
          -1};
}

}  // namespace switchyard::ir
