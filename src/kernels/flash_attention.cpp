#include "kernels/flash_attention.hpp"

#include <ATen/ops/_cudnn_attention_backward.h>
#include <ATen/ops/_cudnn_attention_forward.h>
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

// A step's calls while they are put together.
struct Calls {
  std::vector<Sequences> mixed;
  std::vector<PaddedCall> padded;
  bool separate = true;
};

void add_padded(std::vector<PaddedCall>& calls, const AttentionBlock& block, i64 length) {
  if (!calls.empty()) {
    PaddedCall& last = calls.back();
    if (last.rows == length && block.qn == length && block.q == last.queries + last.count * length &&
        block.k == last.keys + last.count * length) {
      ++last.count;
      return;
    }
  }
  calls.push_back({.queries = block.q, .keys = block.k, .rows = block.qn, .length = length});
}

bool are_separate(std::vector<AttentionBlock> blocks) {
  std::ranges::sort(blocks, {}, &AttentionBlock::k);
  return std::ranges::adjacent_find(
             blocks, [](const AttentionBlock& a, const AttentionBlock& b) { return a.k + a.kn > b.k; }) == blocks.end();
}

Calls calls_of(const FlashStep& step, PaddedLength padded_length) {
  std::vector<AttentionBlock> blocks;
  for (const AttentionBlock& block : step.blocks)
    if (block.qn > 0 && block.kn > 0) blocks.push_back(block);
  std::ranges::stable_sort(blocks, {}, &AttentionBlock::q);
  Calls calls;
  for (const AttentionBlock& block : blocks) {
    if (padded_length && block.causal && block.qn == block.kn)
      if (const i64 length = padded_length(block.qn); length > 0) {
        add_padded(calls.padded, block, length);
        continue;
      }
    auto call = std::ranges::find_if(calls.mixed, [&](const Sequences& open) { return open.takes(block); });
    if (call == calls.mixed.end()) call = calls.mixed.insert(call, Sequences(block.causal));
    call->add(block);
  }
  for (Sequences& call : calls.mixed) call.fill(step.queries, step.keys);
  calls.separate = are_separate(std::move(blocks));
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

// The rows of a call's sequences in x (rows, heads * head_dim) as (count, heads, length, head_dim).
at::Tensor padded_sequences(const at::Tensor& x, i64 first, const PaddedCall& call, int head_dim) {
  at::Tensor rows = x.narrow(0, first, call.count * call.rows);
  if (call.rows < call.length) {
    const at::Tensor own = std::exchange(rows, at::empty({call.length, x.size(1)}, x.options()));
    rows.narrow(0, 0, call.rows).copy_(own);
    rows.narrow(0, call.rows, call.length - call.rows).zero_();
  }
  return in_heads(rows, head_dim).view({call.count, call.length, -1, head_dim}).transpose(1, 2);
}

// The inverse: rows without what is behind them.
at::Tensor rows_of(const at::Tensor& sequences, const PaddedCall& call) {
  return sequences.transpose(1, 2).narrow(1, 0, call.rows).reshape({call.count * call.rows, -1});
}

// (heads, T) to (count, heads, length, 1), and back. What zeros do: queries of zeros have scores of 0, and with a
// gradient of 0 they add nothing to any.
at::Tensor padded_statistics(const at::Tensor& lse, const PaddedCall& call) {
  const i64 heads = lse.size(0);
  const at::Tensor own = lse.narrow(1, call.queries, call.count * call.rows).view({heads, call.count, call.rows}),
                   made = call.rows < call.length ? at::zeros({call.count, heads, call.length}, lse.options())
                                                  : at::empty({call.count, heads, call.length}, lse.options());
  made.narrow(2, 0, call.rows).copy_(own.transpose(0, 1));
  return made.unsqueeze(3);
}

at::Tensor statistics_of(const at::Tensor& padded, const PaddedCall& call) {
  const i64 heads = padded.size(1);
  return padded.view({call.count, heads, call.length}).narrow(2, 0, call.rows).transpose(0, 1).reshape({heads, -1});
}

/// Output and statistics of a call's rows.
std::pair<at::Tensor, at::Tensor> attend_padded(const PaddedCall& call, const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, int head_dim, double scale) {
  const auto made = at::_cudnn_attention_forward(padded_sequences(q, call.queries, call, head_dim),
                                                 padded_sequences(k, call.keys, call, head_dim),
                                                 padded_sequences(v, call.keys, call, head_dim), {}, {}, {},
                                                 call.length, call.length, true, 0.0, true, false, scale);
  return {rows_of(std::get<0>(made), call), statistics_of(std::get<1>(made), call)};
}

void attend(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            const FlashCalls& calls, int head_dim, double scale, bool more) {
  require_fit("flash_attention", q, k, v, o, lse, head_dim);
  if (q.numel() == 0) return;
  if (!more && calls.mixed.empty()) {
    o.zero_();
    lse.fill_(-kInfinity);
  }
  for (const FlashCall& call : calls.mixed) {
    const auto [out, statistic, seed, offset, mask] = at::_flash_attention_forward(
        in_heads(q, head_dim), in_heads(k, head_dim), in_heads(v, head_dim), call.query_ends, call.key_ends,
        call.longest_queries, call.longest_keys, 0.0, call.causal, false, scale);
    statistic.masked_fill_(statistic.eq(kInfinity), -kInfinity);  // queries without keys
    const at::Tensor rows = out.reshape({q.size(0), q.size(1)});
    if (more || &call != calls.mixed.data()) {
      merge_attention(o, lse, rows, statistic, head_dim);
    } else {
      o.copy_(rows);
      lse.copy_(statistic);
    }
  }
  for (const PaddedCall& call : calls.padded) {
    const auto [rows, statistic] = attend_padded(call, q, k, v, head_dim, scale);
    at::Tensor own = o.narrow(0, call.queries, rows.size(0)), own_lse = lse.narrow(1, call.queries, rows.size(0));
    if (more) {
      merge_attention(own, own_lse, rows, statistic, head_dim);
    } else {
      own.copy_(rows);
      own_lse.copy_(statistic);
    }
  }
}

/// Gradients of one call, in rows: of queries, keys and values.
std::array<at::Tensor, 3> gradients_of(const FlashCall& call, const at::Tensor& d_out, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                                       const at::Tensor& lse, int head_dim, double scale) {
  const at::Tensor unused = at::empty({0}, q.options());  // for dropout
  const auto [dq, dk, dv] =
      at::_flash_attention_backward(in_heads(d_out, head_dim), in_heads(q, head_dim), in_heads(k, head_dim),
                                    in_heads(v, head_dim), in_heads(o, head_dim), lse, call.query_ends, call.key_ends,
                                    call.longest_queries, call.longest_keys, 0.0, call.causal, unused, unused, scale);
  return {dq.reshape(q.sizes()), dk.reshape(k.sizes()), dv.reshape(v.sizes())};
}

/// The same of the call's rows alone.
std::array<at::Tensor, 3> gradients_of(const PaddedCall& call, const at::Tensor& d_out, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                                       const at::Tensor& lse, int head_dim, double scale) {
  const auto of = [&](const at::Tensor& x, i64 first) { return padded_sequences(x, first, call, head_dim); };
  // libtorch finds a plan of cuDNN's by the strides of queries, keys and values; those of others must follow from
  // these.
  const at::Tensor rows = o.contiguous(), d_rows = d_out.contiguous();
  const at::Tensor unused = at::empty({}, q.options().dtype(at::kLong));  // for dropout
  const auto [dq, dk, dv] = at::_cudnn_attention_backward(
      of(d_rows, call.queries), of(q, call.queries), of(k, call.keys), of(v, call.keys), of(rows, call.queries),
      padded_statistics(lse, call), unused, unused, {}, {}, {}, call.length, call.length, 0.0, true, scale);
  return {rows_of(dq, call), rows_of(dk, call), rows_of(dv, call)};
}

/// put(to, x): each call's gradients, and the rows of dq, dk or dv where they belong.
template <class Put>
void each_gradient(const FlashCalls& calls, const std::array<at::Tensor, 3>& to, const at::Tensor& d_out,
                   const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                   const at::Tensor& lse, int head_dim, double scale, const Put& put) {
  require_fit("flash_attention_backward", q, k, v, o, lse, head_dim);
  if (q.numel() == 0) return;
  for (const FlashCall& call : calls.mixed) {
    const auto made = gradients_of(call, d_out, q, k, v, o, lse, head_dim, scale);
    for (size_t i = 0; i < to.size(); ++i) put(to[i], made[i]);
  }
  for (const PaddedCall& call : calls.padded) {
    const auto made = gradients_of(call, d_out, q, k, v, o, lse, head_dim, scale);
    for (size_t i = 0; i < to.size(); ++i)
      put(to[i].narrow(0, i == 0 ? call.queries : call.keys, call.count * call.rows), made[i]);
  }
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

bool has_padded_attention(const at::Device& device, i64 head_dim) {
  if (device.is_cpu()) return false;
  try {
    const at::Tensor x = at::zeros({1, 1, 64, head_dim}, at::TensorOptions().dtype(at::kBFloat16).device(device));
    at::_cudnn_attention_forward(x, x, x, {}, {}, {}, 64, 64, true, 0.0, true, false, 1.0);
    return true;
  } catch (const c10::Error&) {
    return false;  // no cuDNN, or one that can't
  }
}

std::vector<FlashCalls> flash_calls(const std::vector<FlashStep>& steps, const at::Device& device,
                                    PaddedLength padded_length) {
  std::vector<Calls> all;
  i64 size = 0;
  for (const FlashStep& step : steps)
    for (const Sequences& call : all.emplace_back(calls_of(step, padded_length)).mixed)
      size += 2 * static_cast<i64>(call.queries.size());
  const at::Tensor ends = at::empty({size}, at::TensorOptions().dtype(at::kInt).device(at::kCPU));
  int* next = ends.mutable_data_ptr<int>();
  for (const Calls& calls : all)
    for (const Sequences& call : calls.mixed)
      for (const std::vector<i64>* list : {&call.queries, &call.keys})
        next = std::ranges::transform(*list, next, [](i64 end) { return static_cast<int>(end); }).out;
  const at::Tensor there = upload(ends, device);
  std::vector<FlashCalls> made;
  i64 at = 0;
  const auto take = [&](i64 n) { return there.narrow(0, std::exchange(at, at + n), n); };
  for (Calls& calls : all) {
    FlashCalls& list = made.emplace_back();
    list.padded = std::move(calls.padded);
    list.separate = calls.separate;
    for (const Sequences& call : calls.mixed) {
      const auto n = static_cast<i64>(call.queries.size());
      const at::Tensor queries = take(n), keys = take(n);
      list.mixed.push_back({.query_ends = queries,
                            .key_ends = keys,
                            .longest_queries = call.longest_queries,
                            .longest_keys = call.longest_keys,
                            .causal = call.causal});
    }
  }
  return made;
}

void flash_attention(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const FlashCalls& calls, int head_dim, double scale) {
  attend(o, lse, q, k, v, calls, head_dim, scale, false);
}

void flash_attention_to_more_keys(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const FlashCalls& calls, int head_dim, double scale) {
  attend(o, lse, q, k, v, calls, head_dim, scale, true);
}

void flash_attention_backward(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                              const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                              const at::Tensor& lse, const FlashCalls& calls, int head_dim, double scale) {
  if (calls.separate && calls.mixed.size() <= 1 && q.numel() > 0) {
    if (calls.mixed.empty())
      for (at::Tensor* gradient : {&dq, &dk, &dv}) gradient->zero_();
    return each_gradient(calls, {dq, dk, dv}, do_, q, k, v, o, lse, head_dim, scale,
                         [](const at::Tensor& to, const at::Tensor& x) { to.copy_(x); });
  }
  at::Tensor wide_dk = lse.new_zeros(dk.sizes()), wide_dv = lse.new_zeros(dv.sizes());
  dq.zero_();
  add_flash_attention_gradients(dq, wide_dk, wide_dv, do_, q, k, v, o, lse, calls, head_dim, scale);
  dk.copy_(wide_dk);
  dv.copy_(wide_dv);
}

void add_flash_attention_gradients(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                                   const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                                   const at::Tensor& lse, const FlashCalls& calls, int head_dim, double scale) {
  each_gradient(calls, {dq, dk, dv}, do_, q, k, v, o, lse, head_dim, scale,
                [](const at::Tensor& to, const at::Tensor& x) { to.add_(x); });
}

}  // namespace switchyard::kernels
