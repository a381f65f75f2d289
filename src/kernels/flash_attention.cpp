#include "kernels/flash_attention.hpp"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/tensors.hpp"
#include "kernels/upload.hpp"

namespace switchyard::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sequences of one call while it is put together; where they end.
struct Sequences {
  explicit Sequences(bool is_causal) : causal(is_causal) {}
  bool takes(const AttentionBlock& block) const {
    return causal == block.causal && block.q >= queries.back() && block.k >= keys.back();
  }
  void add(const AttentionBlock& block) {
    fill(block.q, block.k);
    end(block.q + block.qn, block.k + block.kn);
  }
  /// Rows before these that are in no block.
  void fill(i64 q, i64 k) {
    if (q > queries.back()) end(q, keys.back());
    if (k > keys.back()) end(queries.back(), k);
  }
  void end(i64 q, i64 k) {
    longest_queries = std::max(longest_queries, q - queries.back());
    longest_keys = std::max(longest_keys, k - keys.back());
    queries.push_back(q);
    keys.push_back(k);
  }

  bool causal;
  std::vector<i64> queries{0}, keys{0};
  i64 longest_queries = 2;  // for one query a sequence the kernel has another form, of as many queries as sequences
  i64 longest_keys = 1;
};

std::vector<Sequences> sequences_of(const FlashStep& step) {
  std::vector<AttentionBlock> blocks;
  for (const AttentionBlock& block : step.blocks)
    if (block.qn > 0 && block.kn > 0) blocks.push_back(block);
  std::ranges::stable_sort(blocks, {}, &AttentionBlock::q);
  std::vector<Sequences> calls;
  for (const AttentionBlock& block : blocks) {
    auto call = std::ranges::find_if(calls, [&](const Sequences& open) { return open.takes(block); });
    if (call == calls.end()) call = calls.insert(call, Sequences(block.causal));
    call->add(block);
  }
  for (Sequences& call : calls) call.fill(step.queries, step.keys);
  return calls;
}

// The kernels read 16 bytes at a time. Rows of other alignment, which cuts of columns may have, are copied.
at::Tensor in_heads(const at::Tensor& x, int head_dim) {
  const i64 unit = 16 / x.element_size();
  const bool aligned = x.stride(0) % unit == 0 && reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0;
  return (aligned ? x : x.clone(at::MemoryFormat::Contiguous)).view({x.size(0), -1, head_dim});
}

void require_fit(const char* name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                 const at::Tensor& lse, int head_dim) {
  require(is_rows(q) && is_rows(k) && is_rows(v) && is_rows(o) && same_shape({&q, &o}) && same_shape({&k, &v}) &&
              head_dim > 0 && head_dim % 8 == 0 && head_dim <= 256 && q.size(1) % head_dim == 0 &&
              k.size(1) % head_dim == 0 && q.scalar_type() == at::kBFloat16 && lse.dim() == 2 &&
              lse.size(0) == q.size(1) / head_dim && lse.size(1) == q.size(0) && lse.is_contiguous(),
          name, {&q, &k, &v, &o, &lse});
}

void attend(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            const std::vector<FlashCall>& calls, int head_dim, double scale, bool more) {
  require_fit("flash_attention", q, k, v, o, lse, head_dim);
  if (q.numel() == 0) return;
  if (!more && calls.empty()) {
    o.zero_();
    lse.fill_(-kInfinity);
  }
  for (const FlashCall& call : calls) {
    const auto [out, statistic, seed, offset, mask] = at::_flash_attention_forward(
        in_heads(q, head_dim), in_heads(k, head_dim), in_heads(v, head_dim), call.query_ends, call.key_ends,
        call.longest_queries, call.longest_keys, 0.0, call.causal, false, scale);
    statistic.masked_fill_(statistic.eq(kInfinity), -kInfinity);  // of queries without keys
    const at::Tensor rows = out.reshape({q.size(0), q.size(1)});
    if (more || &call != calls.data()) {
      merge_attention(o, lse, rows, statistic, head_dim);
    } else {
      o.copy_(rows);
      lse.copy_(statistic);
    }
  }
}

/// Gradients of one call, in rows: of queries, keys and values.
std::array<at::Tensor, 3> gradients_of(const FlashCall& call, const at::Tensor& d_out, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                                       const at::Tensor& lse, int head_dim, double scale) {
  const at::Tensor unused = at::empty({0}, q.options());  // of dropout
  const auto [dq, dk, dv] =
      at::_flash_attention_backward(in_heads(d_out, head_dim), in_heads(q, head_dim), in_heads(k, head_dim),
                                    in_heads(v, head_dim), in_heads(o, head_dim), lse, call.query_ends, call.key_ends,
                                    call.longest_queries, call.longest_keys, 0.0, call.causal, unused, unused, scale);
  return {dq.reshape(q.sizes()), dk.reshape(k.sizes()), dv.reshape(v.sizes())};
}

}  // namespace

bool has_flash_attention(const at::Device& device) {
  if (device.is_cpu()) return false;
  try {
    const at::Tensor x = at::zeros({1, 1, 8}, at::TensorOptions().dtype(at::kBFloat16).device(device)),
                     ends = at::zeros({2}, at::TensorOptions().dtype(at::kInt).device(device));
    at::_flash_attention_forward(x, x, x, ends, ends, 2, 1, 0.0, false, false, 1.0);
    return true;
  } catch (const c10::Error&) {
    return false;  // the device is too old for them, or libtorch was built without them
  }
}

std::vector<std::vector<FlashCall>> flash_calls(const std::vector<FlashStep>& steps, const at::Device& device) {
  std::vector<std::vector<Sequences>> all;
  i64 size = 0;
  for (const FlashStep& step : steps)
    for (const Sequences& call : all.emplace_back(sequences_of(step)))
      size += 2 * static_cast<i64>(call.queries.size());
  const at::Tensor ends = at::empty({size}, at::TensorOptions().dtype(at::kInt).device(at::kCPU));
  int* next = ends.mutable_data_ptr<int>();
  for (const auto& calls : all)
    for (const Sequences& call : calls)
      for (const std::vector<i64>* list : {&call.queries, &call.keys})
        next = std::ranges::transform(*list, next, [](i64 end) { return static_cast<int>(end); }).out;
  const at::Tensor there = upload(ends, device);
  std::vector<std::vector<FlashCall>> made;
  i64 at = 0;
  const auto take = [&](i64 n) { return there.narrow(0, std::exchange(at, at + n), n); };
  for (const auto& calls : all) {
    std::vector<FlashCall>& list = made.emplace_back();
    for (const Sequences& call : calls) {
      const auto n = static_cast<i64>(call.queries.size());
      const at::Tensor queries = take(n), keys = take(n);
      list.push_back({queries, keys, call.longest_queries, call.longest_keys, call.causal});
    }
  }
  return made;
}

void flash_attention(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const std::vector<FlashCall>& calls, int head_dim, double scale) {
  attend(o, lse, q, k, v, calls, head_dim, scale, false);
}

void flash_attention_to_more_keys(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const std::vector<FlashCall>& calls, int head_dim,
                                  double scale) {
  attend(o, lse, q, k, v, calls, head_dim, scale, true);
}

void flash_attention_backward(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                              const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                              const at::Tensor& lse, const std::vector<FlashCall>& calls, int head_dim, double scale) {
  if (calls.size() == 1 && q.numel() > 0) {
    require_fit("flash_attention_backward", q, k, v, o, lse, head_dim);
    const auto made = gradients_of(calls[0], do_, q, k, v, o, lse, head_dim, scale);
    dq.copy_(made[0]);
    dk.copy_(made[1]);
    dv.copy_(made[2]);
    return;
  }
  at::Tensor wide_dk = lse.new_zeros(dk.sizes()), wide_dv = lse.new_zeros(dv.sizes());
  dq.zero_();
  add_flash_attention_gradients(dq, wide_dk, wide_dv, do_, q, k, v, o, lse, calls, head_dim, scale);
  dk.copy_(wide_dk);
  dv.copy_(wide_dv);
}

void add_flash_attention_gradients(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                                   const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                                   const at::Tensor& lse, const std::vector<FlashCall>& calls, int head_dim,
                                   double scale) {
  require_fit("flash_attention_backward", q, k, v, o, lse, head_dim);
  if (q.numel() == 0) return;
  for (const FlashCall& call : calls) {
    const auto made = gradients_of(call, do_, q, k, v, o, lse, head_dim, scale);
    dq.add_(made[0]);
    dk.add_(made[1]);
    dv.add_(made[2]);
  }
}

}  // namespace switchyard::kernels
