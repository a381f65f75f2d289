#include "kernels/unfused_attention.hpp"

#include <ATen/ops/ones.h>

#include "kernels/tensors.hpp"

namespace switchyard::kernels {
namespace {

at::ScalarType sum_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Heads of rows [first, first + L): (H, L, D), a view.
at::Tensor heads(const at::Tensor& x, i64 first, i64 L, i64 D) {
  return x.narrow(0, first, L).view({L, x.size(1) / D, D}).transpose(0, 1);
}

// The same, repeated for each of N query heads.
at::Tensor shared_heads(const at::Tensor& x, i64 first, i64 L, i64 D, i64 N) {
  const at::Tensor own = heads(x, first, L, D);
  const i64 K = own.size(0);
  return K == N ? own : own.unsqueeze(1).expand({K, N / K, L, D}).reshape({N, L, D});
}

// Sums the query heads of each key head: (N, L, D) -> (K, L, D).
at::Tensor summed(const at::Tensor& x, i64 K) {
  return x.size(0) == K ? x : x.view({K, x.size(0) / K, x.size(1), x.size(2)}).sum(1);
}

at::Tensor square(const at::Tensor& w, i64 at, i64 L) { return w.narrow(1, at, L * L).view({w.size(0), L, L}); }

}  // namespace

void attention_weights(at::Tensor& w, const at::Tensor& q, const at::Tensor& k,
                       const std::vector<AttentionBlock>& blocks, int head_dim, double scale) {
  i64 at = 0;
  for (const AttentionBlock& block : blocks) {
    const i64 L = block.qn, N = w.size(0);
    at::Tensor scores = heads(q, block.q, L, head_dim)
                            .bmm(shared_heads(k, block.k, L, head_dim, N).transpose(1, 2))
                            .to(sum_type(q))
                            .mul_(scale);
    scores.masked_fill_(at::ones({L, L}, scores.options().dtype(at::kBool)).triu_(1),
                        -std::numeric_limits<double>::infinity());
    square(w, at, L).copy_(scores.softmax(2));
    at += L * L;
  }
}

void weigh_values(at::Tensor& o, const at::Tensor& w, const at::Tensor& v, const std::vector<AttentionBlock>& blocks,
                  int head_dim) {
  o.zero_();
  i64 at = 0;
  for (const AttentionBlock& block : blocks) {
    const i64 L = block.qn;
    heads(o, block.q, L, head_dim).copy_(square(w, at, L).bmm(shared_heads(v, block.k, L, head_dim, w.size(0))));
    at += L * L;
  }
}

void unfused_attention_backward(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& w,
                                const DroppedWeights& dropped, const std::vector<AttentionBlock>& blocks, int head_dim,
                                double scale) {
  for (at::Tensor* gradient : {&dq, &dk, &dv}) gradient->zero_();
  i64 at = 0;
  for (const AttentionBlock& block : blocks) {
    const i64 L = block.qn, N = w.size(0), K = k.size(1) / head_dim;
    const at::Tensor go = heads(do_, block.q, L, head_dim), weights = square(w, at, L);
    const at::Tensor used = dropped.dropped ? square(*dropped.dropped, at, L) : weights;
    heads(dv, block.k, L, head_dim).copy_(summed(used.transpose(1, 2).bmm(go), K));
    at::Tensor dw = go.bmm(shared_heads(v, block.k, L, head_dim, N).transpose(1, 2)).to(sum_type(q));
    if (dropped.kept) dw.mul_(square(*dropped.kept, at, L)).mul_(1 / (1 - dropped.p));
    const at::Tensor weighted = dw.mul_(weights);
    const at::Tensor shares =
        weights.to(sum_type(q), /*non_blocking=*/false, /*copy=*/true).mul_(weighted.sum(2, true));
    const at::Tensor ds = weighted.sub(shares).mul_(scale).to(q.scalar_type());
    heads(dq, block.q, L, head_dim).copy_(ds.bmm(shared_heads(k, block.k, L, head_dim, N)));
    heads(dk, block.k, L, head_dim).copy_(summed(ds.transpose(1, 2).bmm(heads(q, block.q, L, head_dim)), K));
    at += L * L;
  }
}

}  // namespace switchyard::kernels
