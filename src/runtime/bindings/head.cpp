#include "ir/operators/head.hpp"

#include <algorithm>

#include "kernels/cross_entropy.hpp"
#include "kernels/linear.hpp"
#include "runtime/statistics.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

// Computes, for a chunk of tokens at a time, the logits, their statistics over the whole vocabulary, the gradient of
// the logits in place, and both products with the gradient; neither product if the loss is the only output. If
// gradient_TV is defined, it receives the gradient of the logits, and a later call makes the second product.
void run_head(KernelCall& call, const at::Tensor& gradient_TV) {
  const at::Tensor &x_TH = call.in[0], &w_VH = call.in[1], &labels = call.in[2], &weights = call.in[3];
  at::Tensor& loss = call.out[0];
  const i64 T = x_TH.size(0), V = w_VH.size(0), first = call.first_row(call.instr.in[1]);
  const StatisticRanks ranks(call);  // that together have the whole vocabulary
  const i64 chunk = std::min<i64>(T, ir::HeadLoss::chunk(!x_TH.is_cpu()));
  const DType compute = call.stage.buffers[static_cast<size_t>(call.instr.in[0])].type.dtype;
  const at::Tensor logits_room = gradient_TV.defined() ? gradient_TV : empty({chunk, V}, compute, x_TH.device());
  const at::Tensor top_room = empty({chunk}, call.state, x_TH.device()),
                   sums_room = empty({2 * chunk}, call.state, x_TH.device());
  for (i64 at = 0; at < T; at += chunk) {
    const i64 n = std::min(chunk, T - at);
    const at::Tensor x = x_TH.narrow(0, at, n), label = labels.narrow(0, at, n);
    at::Tensor logits = logits_room.narrow(0, gradient_TV.defined() ? at : 0, n);
    at::Tensor top = top_room.narrow(0, 0, n), sums = sums_room.narrow(0, 0, 2 * n).view({2, n});
    kernels::linear(logits, x, w_VH, {});
    kernels::xent_max(top, logits);
    if (ranks) ranks.maximum("softmax maximum", top);
    kernels::xent_sums(sums, logits, top, label, first);
    if (ranks) ranks.sum("softmax sums", sums);
    at::Tensor chunk_loss = loss.narrow(0, at, n);
    kernels::xent_grad(logits, chunk_loss, top, sums, label, weights.narrow(0, at, n), first);
    if (call.out.size() == 1) continue;
    at::Tensor dx = call.out[1].narrow(0, at, n);
    kernels::linear_dx(dx, logits, w_VH, false);
    if (!gradient_TV.defined()) kernels::linear_dw(call.out[2], logits, x);
  }
}

}  // namespace

void run_head_forward(KernelCall& call) { run_head(call, {}); }
void run_head_loss(KernelCall& call) { run_head(call, {}); }
void run_head_loss_dx(KernelCall& call) { run_head(call, call.out[2]); }

}  // namespace switchyard::runtime
