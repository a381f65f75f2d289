#include "kernels/rope.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "ir/operators/rope.hpp"
#include "runtime/kernel_call.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

std::pair<at::Tensor, at::Tensor> RopeTables::get(int head_dim, i64 positions, const at::Tensor& like) {
  if (positions > positions_) {
    positions_ = positions;
    const config::Rotation rotation = config::rotation(head_dim, theta_, scaling_);
    kernels::rope_tables(cos_, sin_, {{rotation.frequencies, 0, positions_}}, rotation.scale, like);
  }
  return {cos_, sin_};
}

std::pair<at::Tensor, at::Tensor> RopeTables::of(int head_dim, const MicroBatchFeeds& feeds) {
  if (!by_document()) return get(head_dim, std::max<i64>(1, feeds.longest), feeds.weights);
  if (!cos_.defined()) {
    std::vector<kernels::RopeStretch> stretches;
    for (const DocumentPart& part : feeds.parts)
      stretches.push_back(
          {config::rotation(head_dim, theta_, scaling_, part.length).frequencies, part.first, part.count});
    kernels::rope_tables(cos_, sin_, stretches, 1, feeds.weights);
  }
  return {cos_, sin_};
}

void run_rope(KernelCall& call) {
  const auto& op = call.op<ir::Rope>();
  check(op.rotates_by_document() == call.rope.by_document(), "rope: tables of another scaling");
  const auto [cos, sin] = call.rope.of(static_cast<int>(op.head_dim()), call.feeds);
  kernels::rope(call.out[0], call.in[0], cos, sin, call.in[1], static_cast<int>(op.head_dim()), op.inverse());
}

}  // namespace switchyard::runtime
