#include "ir/operators/dropout.hpp"

#include <algorithm>

#include "base/allocation.hpp"

namespace switchyard::ir {

i64 dropout_workspace(i64 rows, i64 columns) {
  constexpr i64 kElements = i64{1} << 18;
  const i64 chunk = std::min(rows, std::max<i64>(1, kElements / std::max<i64>(1, columns)));
  const auto numbers = [](i64 count) { return allocated(count * size_of(DType::i64)); };
  return 2 * (numbers(columns) + numbers(chunk * columns)) + numbers(1);
}

// The kept elements are chosen before the product, which has them in the dtype of the other factor.
i64 Dropout::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  return std::max(dropout_workspace(size.tokens, in[0].shape.size[1]), copy_bytes(in[0], size.tokens, in[0].dtype));
}

i64 DropoutDx::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  return std::max(copy_bytes(in[0], size.tokens, in[0].dtype), kConstantBytes);
}

std::vector<int> Dropout::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                         std::vector<int>&) const {
  return graph.call(std::make_shared<DropoutDx>(p_), {dy[0], call.out[1]}, "d " + graph.value(call.in[0]).name);
}

}  // namespace switchyard::ir
