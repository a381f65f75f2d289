#include "ir/operators/head.hpp"

#include <algorithm>

#include "comm/collectives.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/linear.hpp"
#include "runtime/kernel_call.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

// The ranks of the replica that together have all rows of the weight, for the same tokens.
comm::Channel vocabulary_ranks(const KernelCall& call, const layout::Layout& weight) {
  comm::Channel channel{call.replica.channel.id, {}};
  for (const int peer : call.stage.replica.peers(call.position, weight.split[0]))
    channel.ranks.push_back(call.replica.channel.ranks[static_cast<size_t>(peer)]);
  return channel;
}

// Reduces in place over these ranks; statistics on a device are copied through host memory.
void reduce_over(const KernelCall& call, const comm::Channel& ranks, at::Tensor& statistics, bool maximum) {
  at::Tensor host = statistics.is_cpu() ? statistics : statistics.cpu();
  const i64 row = ++*call.replica.row;
  if (maximum)
    comm::all_reduce_max(*call.replica.fabric, ranks, "softmax maximum", row, host.data_ptr(), host.numel(),
                         call.state);
  else
    comm::all_reduce(*call.replica.fabric, ranks, "softmax sums", row, host.data_ptr(), host.numel(), call.state);
  if (!statistics.is_cpu()) statistics.copy_(host);
}

// Computes, for a chunk of tokens at a time, the logits, their statistics over the whole vocabulary, the gradient of
// the logits in place, and both products with the gradient. If gradient_TV is defined, it receives the gradient of the
// logits, and a later call makes the second product.
void run_head(KernelCall& call, const at::Tensor& gradient_TV) {
  const at::Tensor &x_TH = call.in[0], &w_VH = call.in[1], &labels = call.in[2], &weights = call.in[3];
  at::Tensor &loss = call.out[0], &dx_TH = call.out[1];
  const i64 T = x_TH.size(0), V = w_VH.size(0), first = call.first_row(call.instr.in[1]);
  const auto& w_layout = call.stage.buffers[static_cast<size_t>(call.instr.in[1])].layout;
  const bool cut = !w_layout.split[0].empty();
  const comm::Channel ranks = cut ? vocabulary_ranks(call, w_layout) : comm::Channel{};
  const i64 chunk = std::min<i64>(T, ir::HeadLoss::kChunk);
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
    if (cut) reduce_over(call, ranks, top, true);
    kernels::xent_sums(sums, logits, top, label, first);
    if (cut) reduce_over(call, ranks, sums, false);
    at::Tensor chunk_loss = loss.narrow(0, at, n), dx = dx_TH.narrow(0, at, n);
    kernels::xent_grad(logits, chunk_loss, top, sums, label, weights.narrow(0, at, n), first);
    kernels::linear_dx(dx, logits, w_VH, false);
    if (!gradient_TV.defined()) kernels::linear_dw(call.out[2], logits, x);
  }
}

}  // namespace

void run_head_loss(KernelCall& call) { run_head(call, {}); }
void run_head_loss_dx(KernelCall& call) { run_head(call, call.out[2]); }

}  // namespace switchyard::runtime
