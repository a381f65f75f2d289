#include "kernels/attention.hpp"

#include <limits>

#include "base/errors.hpp"
#include "kernels/attention_tiles.hpp"
#include "kernels/tensors.hpp"

namespace switchyard::kernels {
namespace {

constexpr i64 kQueriesAtOnce = 512;  // in the path of ATen operators; limits the memory for scores

struct Heads {
  i64 query = 0, key = 0, dim = 0;
};

Heads heads_of(const at::Tensor& q, const at::Tensor& k, int head_dim) {
  return {q.size(1) / head_dim, k.size(1) / head_dim, head_dim};
}

bool inputs_fit(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                const at::Tensor& lse, int head_dim) {
  if (!is_rows(q) || !is_rows(k) || !is_rows(v) || !is_rows(o) || head_dim <= 0) return false;
  const auto [heads, kv_heads, dim] = heads_of(q, k, head_dim);
  return same_shape({&q, &o}) && same_shape({&k, &v}) && q.size(1) == heads * dim && k.size(1) == kv_heads * dim &&
         (heads == 0 || (kv_heads > 0 && heads % kv_heads == 0)) && lse.dim() == 2 && lse.size(0) == heads &&
         lse.size(1) == q.size(0) && lse.is_contiguous();
}

void check_blocks(const std::vector<AttentionBlock>& blocks, i64 queries, i64 keys) {
  for (const AttentionBlock& b : blocks) {
    check(b.q >= 0 && b.qn >= 0 && b.q + b.qn <= queries && b.k >= 0 && b.kn >= 0 && b.k + b.kn <= keys &&
              (!b.causal || b.qn <= b.kn),
          "attention: block of queries {}+{} against keys {}+{}{} doesn't fit {} queries and {} keys", b.q, b.qn, b.k,
          b.kn, b.causal ? " (causal)" : "", queries, keys);
  }
}

/// Whether every query row is in a block that has keys, so that the outputs need no initial values.
bool all_rows_see_keys(const std::vector<AttentionBlock>& blocks, i64 rows) {
  i64 seen = 0;
  for (const AttentionBlock& b : blocks) seen += b.kn > 0 ? b.qn : 0;
  return seen == rows;
}

template <class T>
AttentionInput<T> input_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int head_dim, double scale) {
  const Heads heads = heads_of(q, k, head_dim);
  return {.q = const_rows_of<T>(q),
          .k = const_rows_of<T>(k),
          .v = const_rows_of<T>(v),
          .heads = heads.query,
          .kv_heads = heads.key,
          .head_dim = heads.dim,
          .scale = static_cast<T>(scale)};
}

/// Rows [row, row + n) of (T, heads * D) as (K, G * n, D) in the statistics' dtype, with the queries of a key/value
/// head stacked.
at::Tensor stacked(const at::Tensor& x, i64 row, i64 n, const Heads& heads, at::ScalarType type) {
  return x.narrow(0, row, n)
      .to(type)
      .view({n, heads.key, -1, heads.dim})
      .permute({1, 2, 0, 3})
      .reshape({heads.key, -1, heads.dim});
}

/// The inverse of `stacked`: (K, G * n, D) as (n, heads * D).
at::Tensor unstacked(const at::Tensor& x, i64 n, const Heads& heads) {
  return x.view({heads.key, -1, n, heads.dim}).permute({2, 0, 1, 3}).reshape({n, -1});
}

/// Scaled scores (K, G * n, keys), -inf where a causal block hides the key; i: the first query's index in its block.
at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, const AttentionBlock& block, i64 i, i64 n,
                     double scale) {
  at::Tensor scores = q.matmul(k.transpose(1, 2)).mul_(scale);
  if (block.causal) {
    const at::Tensor hidden =
        scores.new_ones({n, k.size(1)}, scores.options().dtype(at::kBool)).triu(block.kn - block.qn + i + 1);
    scores.view({k.size(0), -1, n, k.size(1)}).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  }
  return scores;
}

void forward_by_operators(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionBlock& block, const Heads& heads, double scale, bool more) {
  const at::ScalarType type = lse.scalar_type();
  const at::Tensor keys = stacked(k, block.k, block.kn, {heads.key, heads.key, heads.dim}, type);
  const at::Tensor values = stacked(v, block.k, block.kn, {heads.key, heads.key, heads.dim}, type);
  for (i64 i = 0; i < block.qn; i += kQueriesAtOnce) {
    const i64 n = std::min<i64>(kQueriesAtOnce, block.qn - i), row = block.q + i;
    const at::Tensor scores = scores_of(stacked(q, row, n, heads, type), keys, block, i, n, scale);
    const at::Tensor total = scores.logsumexp({2});
    const at::Tensor out = unstacked(scores.sub(total.unsqueeze(2)).exp_().matmul(values), n, heads);
    if (more) {
      at::Tensor o_rows = o.narrow(0, row, n), lse_rows = lse.narrow(1, row, n);
      merge_attention(o_rows, lse_rows, out, total.view({heads.query, n}), static_cast<int>(heads.dim));
    } else {
      lse.narrow(1, row, n).copy_(total.view({heads.query, n}));
      o.narrow(0, row, n).copy_(out);
    }
  }
}

/// dk and dv are in the statistics' dtype, because several blocks may add to a key's row.
void backward_by_operators(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& d_out, const at::Tensor& q,
                           const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse,
                           const AttentionBlock& block, const Heads& heads, double scale) {
  const at::ScalarType type = lse.scalar_type();
  const Heads own{heads.key, heads.key, heads.dim};
  const at::Tensor keys = stacked(k, block.k, block.kn, own, type), values = stacked(v, block.k, block.kn, own, type);
  for (i64 i = 0; i < block.qn; i += kQueriesAtOnce) {
    const i64 n = std::min<i64>(kQueriesAtOnce, block.qn - i), row = block.q + i;
    const at::Tensor queries = stacked(q, row, n, heads, type), d = stacked(d_out, row, n, heads, type);
    const at::Tensor total = lse.narrow(1, row, n).reshape({heads.key, -1, 1});
    const at::Tensor p = scores_of(queries, keys, block, i, n, scale).sub(total).exp_();
    const at::Tensor delta = d.mul(stacked(o, row, n, heads, type)).sum({2}, true);
    const at::Tensor ds = d.matmul(values.transpose(1, 2)).sub_(delta).mul_(p).mul_(scale);
    dq.narrow(0, row, n).add_(unstacked(ds.matmul(keys), n, heads));
    dk.narrow(0, block.k, block.kn).add_(unstacked(ds.transpose(1, 2).matmul(queries), block.kn, own));
    dv.narrow(0, block.k, block.kn).add_(unstacked(p.transpose(1, 2).matmul(d), block.kn, own));
  }
}

void attend(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            const std::vector<AttentionBlock>& blocks, int head_dim, double scale, bool more) {
  require(inputs_fit(q, k, v, o, lse, head_dim), "attention", {&o, &lse, &q, &k, &v});
  check_blocks(blocks, q.size(0), k.size(0));
  if (q.numel() == 0) return;
  if (!more && !all_rows_see_keys(blocks, q.size(0))) {
    o.zero_();
    lse.fill_(-std::numeric_limits<double>::infinity());
  }
  if (!loops_apply({&o, &lse, &q, &k, &v})) {
    for (const AttentionBlock& block : blocks) {
      if (block.kn > 0) forward_by_operators(o, lse, q, k, v, block, heads_of(q, k, head_dim), scale, more);
    }
    return;
  }
  with_real(q, [&]<class T>() {
    attention_tiles<T>(rows_of<T>(o), lse.mutable_data_ptr<T>(), input_of<T>(q, k, v, head_dim, scale), blocks, more);
  });
}

}  // namespace

void attention(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const std::vector<AttentionBlock>& blocks, int head_dim, double scale) {
  attend(o, lse, q, k, v, blocks, head_dim, scale, false);
}

void attention_to_more_keys(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::vector<AttentionBlock>& blocks, int head_dim,
                            double scale) {
  attend(o, lse, q, k, v, blocks, head_dim, scale, true);
}

void merge_attention(at::Tensor& o, at::Tensor& lse, const at::Tensor& o_block, const at::Tensor& lse_block,
                     int head_dim) {
  const double nothing = -std::numeric_limits<double>::infinity();
  const at::Tensor share =
      lse_block.sub(lse).sigmoid_().masked_fill_(lse_block.eq(nothing), 0).t().unsqueeze(2);  // (T, N, 1)
  const at::Tensor rows = o.view({o.size(0), -1, head_dim});
  rows.sub_(rows.sub(o_block.view(rows.sizes())).mul_(share));
  lse.copy_(lse.logaddexp(lse_block));
}

void attention_backward(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_, const at::Tensor& q,
                        const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse,
                        const std::vector<AttentionBlock>& blocks, int head_dim, double scale) {
  for (at::Tensor* gradient : {&dq, &dk, &dv}) gradient->zero_();
  if (dk.scalar_type() == lse.scalar_type())
    return add_attention_gradients(dq, dk, dv, do_, q, k, v, o, lse, blocks, head_dim, scale);
  at::Tensor wide_dk = lse.new_zeros(dk.sizes()), wide_dv = lse.new_zeros(dv.sizes());
  add_attention_gradients(dq, wide_dk, wide_dv, do_, q, k, v, o, lse, blocks, head_dim, scale);
  dk.copy_(wide_dk);
  dv.copy_(wide_dv);
}

void add_attention_gradients(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_, const at::Tensor& q,
                             const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse,
                             const std::vector<AttentionBlock>& blocks, int head_dim, double scale) {
  require(inputs_fit(q, k, v, o, lse, head_dim) && is_rows(do_) && is_rows(dq) && is_rows(dk) && is_rows(dv) &&
              same_shape({&q, &do_, &dq}) && same_shape({&k, &dk, &dv}),
          "attention_backward", {&dq, &dk, &dv, &do_, &q, &k, &v, &o, &lse});
  check_blocks(blocks, q.size(0), k.size(0));
  if (q.numel() == 0 || k.numel() == 0) return;
  if (!loops_apply({&dq, &dk, &dv, &do_, &q, &k, &v, &o, &lse})) {
    for (const AttentionBlock& block : blocks) {
      if (block.kn > 0) backward_by_operators(dq, dk, dv, do_, q, k, v, o, lse, block, heads_of(q, k, head_dim), scale);
    }
    return;
  }
  with_real(q, [&]<class T>() {
    attention_tiles_backward<T>(rows_of<T>(dq), rows_of<T>(dk), rows_of<T>(dv), const_rows_of<T>(do_),
                                const_rows_of<T>(o), lse.const_data_ptr<T>(), input_of<T>(q, k, v, head_dim, scale),
                                blocks);
  });
}

}  // namespace switchyard::kernels
