#include "kernels/attention.hpp"

#include <cmath>

#include "ir/ops/ops.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {
namespace {

double scale_of(i64 head_dim) { return 1 / std::sqrt(static_cast<double>(head_dim)); }

}  // namespace

// The statistics are a (T, heads) value of the graph; the kernel keeps them per head, (heads, T): the same memory, turned.
void run_attention(KernelCall& call) {
  const i64 D = call.op<ir::Attention>().head_dim();
  at::Tensor lse = call.out[1].view({call.out[1].size(1), call.out[1].size(0)});
  kernels::attention(call.out[0], lse, call.in[0], call.in[1], call.in[2], call.feeds.blocks, static_cast<int>(D), scale_of(D));
}

void run_attention_dx(KernelCall& call) {
  const i64 D = call.op<ir::AttentionDx>().head_dim();
  const at::Tensor lse = call.in[5].view({call.in[5].size(1), call.in[5].size(0)});
  kernels::attention_backward(call.out[0], call.out[1], call.out[2], call.in[0], call.in[1], call.in[2], call.in[3], call.in[4], lse,
                              call.feeds.blocks, static_cast<int>(D), scale_of(D));
}

}  // namespace switchyard::runtime
