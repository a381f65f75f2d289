#include "kernels/attention.hpp"

#include <ATen/ops/arange.h>

#include <cmath>

#include "ir/operators/attention.hpp"
#include "ir/operators/unfused_attention.hpp"
#include "kernels/dropout.hpp"
#include "kernels/unfused_attention.hpp"
#include "runtime/kernel_call.hpp"
#include "runtime/key_transfer.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

double scale_of(i64 head_dim) { return 1 / std::sqrt(static_cast<double>(head_dim)); }

// Rows of queries in the dtype in which several steps add to them: `out` itself, or others that are copied there.
struct WideRows {
  WideRows(at::Tensor& target, DType type)
      : out(target),
        rows(dtype_of(target) == type ? target : empty({target.size(0), target.size(1)}, type, target.device())) {}
  void finish() const {
    if (!rows.is_same(out)) out.copy_(rows);
  }
  at::Tensor &out, rows;
};

// The kernels that serve: those of flash attention where the device has them, which the feeds then have calls for, and
// they fit. All get a step's blocks, or the calls that are made of them.
bool is_flash(const KernelCall& call, DType compute, int head_dim) {
  return !call.feeds.flash.empty() && ir::fits_flash_attention(compute, head_dim);
}

// Dropout of the weights, document by document. Rows are a document's queries; column numbers count heads and keys.
void drop_weights(KernelCall& call, int site, double p) {
  constexpr i64 kMostKeys = i64{1} << 32;
  const at::Tensor &weights = call.out[1], &kept = call.out[2];
  const i64 first = call.first_row(call.instr.out[2]);
  i64 at = 0;
  for (const kernels::AttentionBlock& block : call.feeds.blocks[0]) {
    const i64 L = block.qn;
    for (i64 head = 0; head < kept.size(0); ++head) {
      at::Tensor part = kept.select(0, head).narrow(0, at, L * L).view({L, L});
      const at::Tensor columns =
          at::arange((first + head) * kMostKeys, (first + head) * kMostKeys + L, call.feeds.keys.options());
      kernels::dropout_choice(part, call.feeds.keys.narrow(0, block.q, L), columns, site, p);
    }
    at::Tensor dropped = call.out[3].narrow(1, at, L * L);
    kernels::dropout(dropped, weights.narrow(1, at, L * L), kept.narrow(1, at, L * L), p);
    at += L * L;
  }
}

}  // namespace

// The statistics are a (T, heads) value of the graph. The kernel stores them as (heads, T) in the same memory.
void run_attention(KernelCall& call) {
  const auto D = static_cast<int>(call.op<ir::Attention>().head_dim());
  at::Tensor lse = call.out[1].view({call.out[1].size(1), call.out[1].size(0)});
  KeyTransfer keys(call, call.in[1], call.in[2]);
  WideRows o(call.out[0], keys.in_steps() ? call.state : dtype_of(call.out[0]));
  const bool flash = is_flash(call, dtype_of(call.in[0]), D);
  keys.forward([&](const KeyTransfer::Step& step) {
    if (flash) {
      const auto kernel = step.first ? kernels::flash_attention : kernels::flash_attention_to_more_keys;
      return kernel(o.rows, lse, call.in[0], step.keys.first, step.keys.second, call.feeds.flash[step.number], D,
                    scale_of(D));
    }
    const auto kernel = step.first ? kernels::attention : kernels::attention_to_more_keys;
    kernel(o.rows, lse, call.in[0], step.keys.first, step.keys.second, step.blocks, D, scale_of(D));
  });
  o.finish();
}

void run_attention_dx(KernelCall& call) {
  const auto D = static_cast<int>(call.op<ir::AttentionDx>().head_dim());
  const at::Tensor lse = call.in[5].view({call.in[5].size(1), call.in[5].size(0)});
  KeyTransfer keys(call, call.in[2], call.in[3]);
  const bool flash = is_flash(call, dtype_of(call.in[1]), D);
  if (!keys.any() && flash)
    return kernels::flash_attention_backward(call.out[0], call.out[1], call.out[2], call.in[0], call.in[1], call.in[2],
                                             call.in[3], call.in[4], lse, call.feeds.flash[0], D, scale_of(D));
  if (!keys.any())
    return kernels::attention_backward(call.out[0], call.out[1], call.out[2], call.in[0], call.in[1], call.in[2],
                                       call.in[3], call.in[4], lse, call.feeds.blocks[0], D, scale_of(D));
  WideRows dq(call.out[0], keys.in_steps() ? call.state : dtype_of(call.out[0]));
  dq.rows.zero_();
  keys.backward(call.out[1], call.out[2], [&](const KeyTransfer::Step& step) {
    at::Tensor dk = step.gradients.first, dv = step.gradients.second;
    if (flash)
      return kernels::add_flash_attention_gradients(dq.rows, dk, dv, call.in[0], call.in[1], step.keys.first,
                                                    step.keys.second, call.in[4], lse, call.feeds.flash[step.number], D,
                                                    scale_of(D));
    kernels::add_attention_gradients(dq.rows, dk, dv, call.in[0], call.in[1], step.keys.first, step.keys.second,
                                     call.in[4], lse, step.blocks, D, scale_of(D));
  });
  dq.finish();
}

void run_unfused_attention(KernelCall& call) {
  const auto& op = call.op<ir::UnfusedAttention>();
  const int D = static_cast<int>(op.head_dim());
  kernels::attention_weights(call.out[1], call.in[0], call.in[1], call.feeds.blocks[0], D, scale_of(D));
  if (op.dropout() > 0) drop_weights(call, op.site(), op.dropout());
  kernels::weigh_values(call.out[0], op.dropout() > 0 ? call.out[3] : call.out[1], call.in[2], call.feeds.blocks[0], D);
}

void run_unfused_attention_dx(KernelCall& call) {
  const auto& op = call.op<ir::UnfusedAttentionDx>();
  const int D = static_cast<int>(op.head_dim());
  kernels::DroppedWeights dropped;
  if (op.dropout() > 0) dropped = {&call.in[5], &call.in[6], op.dropout()};
  kernels::unfused_attention_backward(call.out[0], call.out[1], call.out[2], call.in[0], call.in[1], call.in[2],
                                      call.in[3], call.in[4], dropped, call.feeds.blocks[0], D, scale_of(D));
}

}  // namespace switchyard::runtime
