#include "kernels/rope.hpp"

#include <algorithm>

#include "ir/operators/rope.hpp"
#include "runtime/kernel_call.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

std::pair<at::Tensor, at::Tensor> RopeTables::get(int head_dim, i64 positions, const at::Tensor& like) {
  if (positions > positions_) {
    positions_ = positions;
    const config::Rotation rotation = config::rotation(head_dim, theta_, scaling_);
    kernels::rope_tables(cos_, sin_, rotation.frequencies, rotation.scale, positions_, like);
  }
  return {cos_, sin_};
}

void run_rope(KernelCall& call) {
  const auto& op = call.op<ir::Rope>();
  const i64 longest = std::max<i64>(1, call.feeds.longest);
  const auto [cos, sin] = call.rope.get(static_cast<int>(op.head_dim()), longest, call.feeds.weights);
  kernels::rope(call.out[0], call.in[0], cos, sin, call.in[1], static_cast<int>(op.head_dim()), op.inverse());
}

}  // namespace switchyard::runtime
