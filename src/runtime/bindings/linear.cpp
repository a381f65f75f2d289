#include "kernels/linear.hpp"

#include <ATen/ops/as_strided.h>

#include "base/errors.hpp"
#include "ir/operators/linear.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {
namespace {

using Tensors = std::vector<at::Tensor>;

// Tensors that are adjacent in memory along `dim` (0: rows of contiguous matrices, 1: columns of one buffer) as one
// tensor; undefined if they are not adjacent.
at::Tensor fused(const Tensors& members, int64_t dim) {
  i64 width = 0;
  for (size_t k = 0; k < members.size(); ++k) {
    const at::Tensor& t = members[k];
    if (t.stride(-1) != 1 && t.size(-1) != 1) return {};
    if (dim == 0 && !t.is_contiguous()) return {};
    if (dim == 1 && t.stride(0) != members[0].stride(0)) return {};
    const i64 offset = dim == 0 ? width * (t.dim() == 2 ? t.size(1) : 1) : width;
    if (!t.is_alias_of(members[0]) || t.storage_offset() != members[0].storage_offset() + offset) return {};
    width += t.size(dim);
  }
  if (members[0].dim() == 1) return members[0].as_strided({width}, {1});
  if (dim == 0) return members[0].as_strided({width, members[0].size(1)}, {members[0].size(1), 1});
  return members[0].as_strided({members[0].size(0), width}, {members[0].stride(0), 1});
}

Tensors slice(const Tensors& list, int first, int count) {
  return {list.begin() + first, list.begin() + first + count};
}

}  // namespace

void run_linear(KernelCall& call) {
  const auto& op = call.op<ir::Linear>();
  const bool adds_bias = op.bias() && call.instr.first_partial[static_cast<size_t>(call.position)];
  const int n = op.weights();
  if (n > 1) {
    at::Tensor y = fused(call.out, 1), w = fused(slice(call.in, 1, n), 0),
               bias = adds_bias ? fused(slice(call.in, 1 + n, n), 0) : at::Tensor();
    if (y.defined() && w.defined() && bias.defined() == adds_bias) {
      kernels::linear(y, call.in[0], w, bias);
      return;
    }
  }
  for (int k = 0; k < n; ++k)
    kernels::linear(call.out[static_cast<size_t>(k)], call.in[0], call.in[static_cast<size_t>(1 + k)],
                    adds_bias ? call.in[static_cast<size_t>(1 + n + k)] : at::Tensor());
}

void run_linear_dx(KernelCall& call) {
  const int n = call.op<ir::LinearDx>().weights();
  if (n > 1) {
    const at::Tensor dy = fused(slice(call.in, 0, n), 1), w = fused(slice(call.in, n, n), 0);
    if (dy.defined() && w.defined()) {
      kernels::linear_dx(call.out[0], dy, w, false);
      return;
    }
  }
  for (int k = 0; k < n; ++k)
    kernels::linear_dx(call.out[0], call.in[static_cast<size_t>(k)], call.in[static_cast<size_t>(n + k)], k > 0);
}

void run_linear_dw(KernelCall& call) {
  const int n = call.op<ir::LinearDw>().weights();
  const at::Tensor& x = call.in[static_cast<size_t>(n)];
  if (n > 1) {
    const at::Tensor dy = fused(slice(call.in, 0, n), 1);
    at::Tensor dw = fused(call.out, 0);
    if (dy.defined() && dw.defined()) {
      kernels::linear_dw(dw, dy, x);
      return;
    }
  }
  for (int k = 0; k < n; ++k) kernels::linear_dw(call.out[static_cast<size_t>(k)], call.in[static_cast<size_t>(k)], x);
}

void run_bias_dw(KernelCall& call) { kernels::bias_dw(call.out[0], call.in[0]); }

}  // namespace switchyard::runtime
