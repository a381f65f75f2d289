#include "ir/operators/rope.hpp"

#include "base/allocation.hpp"

namespace switchyard::ir {

std::vector<int> Rope::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                      std::vector<int>&) const {
  return {graph.call(std::make_shared<Rope>(head_dim_, !inverse_, by_document_), {dy[0], call.in[1]},
                     "d " + graph.value(call.in[0]).name)[0],
          -1};
}

// The input, what it becomes, two products for half of it, and the rows of the tables.
i64 Rope::temporaries(std::span<const Type> in, std::span<const Type>, i64 tokens) const {
  const i64 row = in[0].shape.size[1] / 2, number = size_of(state_of(in[0].dtype));
  return 2 *
         (wide_bytes(in[0], tokens) + allocated(tokens * row * number) + allocated(tokens * head_dim_ / 2 * number));
}

}  // namespace switchyard::ir
