#include "gpu_operators.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace switchyard::standin {
namespace {

std::atomic<std::int64_t> forward_calls = 0, backward_calls = 0, padded_forward_calls = 0, padded_backward_calls = 0;

void demand(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("stand-in attention: " + what);
}

void demand_alignment(const at::Tensor& heads) {
  demand(reinterpret_cast<std::uintptr_t>(heads.const_data_ptr()) % 16 == 0 && heads.stride(0) % 8 == 0,
         "heads that begin at multiples of 16 bytes");
}

// Rows of heads in fp64, and what to write into: NaN where nothing is written.
struct Heads {
  explicit Heads(const at::Tensor& x) : values(x.to(at::kDouble).contiguous()) {}
  double* at(std::int64_t row, std::int64_t head) const {
    return values.mutable_data_ptr<double>() + (row * values.size(1) + head) * values.size(2);
  }
  at::Tensor values;
};

Heads unwritten(const at::Tensor& like) {
  return Heads(at::full(like.sizes(), NAN, like.options().dtype(at::kDouble)));
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add(double* to, double factor, const double* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
}

// Queries, keys and values as rows of heads, and the sequences that they are.
struct Call {
  Call(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value)
      : like(query), q(query), k(key), v(value) {
    demand(query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf, "only fp16 and bf16");
    demand(query.dim() == 3 && query.size(2) % 8 == 0 && query.size(2) <= 256, "heads in steps of 8, up to 256");
    for (const at::Tensor* x : {&query, &key, &value}) {
      demand(x->scalar_type() == query.scalar_type() && x->stride(2) == 1, "dense heads of one dtype");
      demand_alignment(*x);
    }
    demand(query.size(1) % key.size(1) == 0 && key.sizes() == value.sizes(), "heads of keys divide those of queries");
  }

  std::size_t sequences() const { return query_ends.size() - 1; }
  std::int64_t queries(std::size_t s) const { return query_ends[s + 1] - query_ends[s]; }
  std::int64_t keys(std::size_t s) const { return key_ends[s + 1] - key_ends[s]; }
  /// visit(row of a query, head, first key, keys that it sees)
  template <class Visit>
  void each_query(const Visit& visit) const {
    for (std::size_t s = 0; s < sequences(); ++s)
      for (std::int64_t i = 0; i < queries(s); ++i) {
        const std::int64_t last = causal ? keys(s) - queries(s) + i + 1 : keys(s);
        for (std::int64_t head = 0; head < like.size(1); ++head)
          visit(query_ends[s] + i, head, key_ends[s], std::max<std::int64_t>(0, last));
      }
  }
  std::int64_t key_head(std::int64_t head) const { return head / (like.size(1) / k.values.size(1)); }

  at::Tensor like;
  Heads q, k, v;
  std::vector<std::int64_t> query_ends, key_ends;
  bool causal = true;
  double scale = 1;
};

/// Output, and statistics in fp32 (heads, rows).
std::pair<at::Tensor, at::Tensor> attend(const Call& call) {
  const std::int64_t dim = call.like.size(2);
  const Heads out = unwritten(call.like);
  const at::Tensor lse = at::full({call.like.size(1), call.like.size(0)}, NAN, call.like.options().dtype(at::kFloat));
  call.each_query([&](std::int64_t row, std::int64_t head, std::int64_t first, std::int64_t seen) {
    std::vector<double> p(static_cast<std::size_t>(seen));
    double top = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      p[j] = call.scale * dot(call.q.at(row, head), call.k.at(first + j, call.key_head(head)), dim);
      top = std::max(top, p[j]);
    }
    for (double& x : p) sum += x = std::exp(x - top);
    std::fill_n(out.at(row, head), dim, 0);
    for (std::int64_t j = 0; j < seen; ++j)
      add(out.at(row, head), p[j] / sum, call.v.at(first + j, call.key_head(head)), dim);
    lse.mutable_data_ptr<float>()[head * call.like.size(0) + row] =
        seen > 0 ? static_cast<float>(top + std::log(sum)) : INFINITY;
  });
  return {out.values.to(call.like.scalar_type()), lse};
}

/// Gradients of queries, keys and values. lse (heads, rows)
std::array<at::Tensor, 3> gradients(const Call& call, const at::Tensor& d, const at::Tensor& o, const at::Tensor& lse) {
  for (const at::Tensor* x : {&d, &o}) {
    demand(x->scalar_type() == call.like.scalar_type(), "outputs in one dtype");
    demand_alignment(*x);
  }
  demand(lse.is_contiguous() && lse.scalar_type() == at::kFloat && lse.size(0) == call.like.size(1),
         "lse (heads, rows)");
  const Heads d_out(d), out(o);
  const Heads dq = unwritten(call.like), dk = unwritten(call.k.values), dv = unwritten(call.k.values);
  const std::int64_t dim = call.like.size(2);
  for (const Heads* gradient : {&dk, &dv})
    if (call.key_ends.back() > 0) gradient->values.narrow(0, 0, call.key_ends.back()).zero_();
  call.each_query([&](std::int64_t row, std::int64_t head, std::int64_t first, std::int64_t seen) {
    const double* of_row = d_out.at(row, head);
    const double total = lse.const_data_ptr<float>()[head * call.like.size(0) + row],
                 delta = dot(of_row, out.at(row, head), dim);
    std::fill_n(dq.at(row, head), dim, 0);
    for (std::int64_t j = first; j < first + seen; ++j) {
      const std::int64_t kv = call.key_head(head);
      const double p = std::exp(call.scale * dot(call.q.at(row, head), call.k.at(j, kv), dim) - total);
      const double ds = call.scale * p * (dot(of_row, call.v.at(j, kv), dim) - delta);
      add(dq.at(row, head), ds, call.k.at(j, kv), dim);
      add(dk.at(j, kv), ds, call.q.at(row, head), dim);
      add(dv.at(j, kv), p, of_row, dim);
    }
  });
  const auto rounded = [&](const Heads& x) { return x.values.to(call.like.scalar_type()); };
  return {rounded(dq), rounded(dk), rounded(dv)};
}

// Operators have more arguments in later releases; those here keep their places.
struct Arguments {
  Arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : count(op.schema().arguments().size()), first(stack->data() + stack->size() - count) {}
  const c10::IValue& operator[](std::size_t i) const { return first[i]; }
  at::Tensor tensor(std::size_t i) const { return first[i].toTensor(); }
  std::size_t count;
  const c10::IValue* first;
};

// rest: ends of queries, of keys, the longest of both, dropout, causal
Call flash_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const c10::IValue* rest, double scale) {
  Call call(q, k, v);
  call.causal = rest[5].toBool();
  call.scale = scale;
  const at::Tensor ends[2] = {rest[0].toTensor(), rest[1].toTensor()};
  for (const at::Tensor& end : ends)
    demand(end.scalar_type() == at::kInt && end.is_contiguous() && end.dim() == 1, "ends of sequences");
  demand(ends[0].numel() == ends[1].numel() && ends[0].numel() > 1, "as many sequences of queries as of keys");
  for (int side = 0; side < 2; ++side) {
    const int* end = ends[side].const_data_ptr<int>();
    (side == 0 ? call.query_ends : call.key_ends).assign(end, end + ends[side].numel());
  }
  demand(rest[2].toInt() > 1, "for one query a sequence the kernel has another form");
  demand(rest[4].toDouble() == 0, "no dropout");
  for (std::size_t s = 0; s < call.sequences(); ++s) {
    demand(call.queries(s) >= 0 && call.queries(s) <= rest[2].toInt(), "sequences of queries are not longer than told");
    demand(call.keys(s) >= 0 && call.keys(s) <= rest[3].toInt(), "sequences of keys are not longer than told");
  }
  demand(call.query_ends.back() <= q.size(0) && call.key_ends.back() <= k.size(0), "sequences end with the rows");
  return call;
}

// query, key, value, ends of queries, of keys, the longest of both, dropout, causal, mask wanted, scale
void flash_forward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++forward_calls;
  const Arguments in(op, stack);
  const auto [out, lse] = attend(flash_call(in.tensor(0), in.tensor(1), in.tensor(2), in.first + 3, in[10].toDouble()));
  const at::Tensor none = at::empty({0}, out.options());
  torch::jit::drop(*stack, in.count);
  torch::jit::push(*stack, out, lse, none, none, none);
}

// gradient of the output, query, key, value, output, lse, ends of queries, of keys, the longest of both, dropout,
// causal, state of random numbers, unused, scale
void flash_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++backward_calls;
  const Arguments in(op, stack);
  const auto [dq, dk, dv] =
      gradients(flash_call(in.tensor(1), in.tensor(2), in.tensor(3), in.first + 6, in[14].toDouble()), in.tensor(0),
                in.tensor(4), in.tensor(5));
  torch::jit::drop(*stack, in.count);
  torch::jit::push(*stack, dq, dk, dv);
}

// (sequences, heads, length, dim) as rows of heads, and back
at::Tensor rows_of(const at::Tensor& x) {
  demand(x.dim() == 4 && x.stride(0) == x.size(2) * x.stride(2), "sequences side by side");
  return x.transpose(1, 2).view({x.size(0) * x.size(2), x.size(1), x.size(3)});
}

at::Tensor sequences_of(const at::Tensor& rows, std::int64_t count) {
  return rows.view({count, rows.size(0) / count, rows.size(1), rows.size(2)}).transpose(1, 2);
}

Call padded_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t length, double dropout,
                 bool causal, double scale) {
  Call call(rows_of(q), rows_of(k), rows_of(v));
  demand(q.size(0) == k.size(0) && q.size(2) == length && k.size(2) == length, "sequences of the length that is told");
  demand(q.size(3) <= 128 && dropout == 0 && causal, "causal heads of up to 128, no dropout");
  for (std::int64_t s = 0; s <= q.size(0); ++s) call.query_ends.push_back(s * length);
  call.key_ends = call.query_ends;
  call.scale = scale;
  return call;
}

// query, key, value, bias, ends of queries, of keys, the longest of both, lse wanted, dropout, causal, mask wanted,
// scale
void padded_forward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++padded_forward_calls;
  const Arguments in(op, stack);
  const at::Tensor q = in.tensor(0);
  const std::int64_t count = q.size(0), length = in[6].toInt();
  const auto [out, lse] =
      attend(padded_call(q, in.tensor(1), in.tensor(2), length, in[9].toDouble(), in[10].toBool(), in[12].toDouble()));
  const at::Tensor statistics = lse.view({q.size(1), count, length}).transpose(0, 1).contiguous().unsqueeze(3);
  const at::Tensor none = at::empty({0}, out.options());
  torch::jit::drop(*stack, in.count);
  torch::jit::push(*stack, sequences_of(out, count), statistics, none, none, length, length, none, none, none);
}

// gradient of the output, query, key, value, output, lse, state of random numbers, twice, bias, ends of queries, of
// keys, the longest of both, dropout, causal, scale
void padded_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++padded_backward_calls;
  const Arguments in(op, stack);
  const at::Tensor q = in.tensor(1), statistics = in.tensor(5);
  const std::int64_t count = q.size(0), length = in[11].toInt();
  demand(statistics.is_contiguous() && statistics.sizes() == at::IntArrayRef({count, q.size(1), length, 1}),
         "lse (sequences, heads, length, 1)");
  for (const std::size_t i : {0, 4})
    demand(in.tensor(i).stride(2) == q.size(1) * q.size(3),
           "outputs with nothing between rows, as plans have no others");
  const auto made = gradients(
      padded_call(q, in.tensor(2), in.tensor(3), length, in[13].toDouble(), in[14].toBool(), in[15].toDouble()),
      rows_of(in.tensor(0)), rows_of(in.tensor(4)),
      statistics.view({count, q.size(1), length}).transpose(0, 1).reshape({q.size(1), -1}).contiguous());
  torch::jit::drop(*stack, in.count);
  torch::jit::push(*stack, sequences_of(made[0], count), sequences_of(made[1], count), sequences_of(made[2], count));
}

// gradient, input, dims that are normalised, rstd, weight, which gradients
void rms_norm_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const c10::IValue* in = stack->data() + stack->size() - 6;
  const at::Tensor dy = in[0].toTensor(), x = in[1].toTensor(), rstd = in[3].toTensor(), w = in[4].toTensor();
  demand(in[2].toIntVector() == std::vector<std::int64_t>{x.size(-1)}, "the last dim is normalised");
  demand(dy.scalar_type() == x.scalar_type() && w.scalar_type() == x.scalar_type(), "one dtype");
  demand(dy.is_contiguous() && rstd.is_contiguous(), "gradients and statistics side by side");
  demand(rstd.scalar_type() == (x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat), "rstd in fp32 or fp64");
  const auto wanted = in[5].toBoolList();
  const at::Tensor normal = x.to(at::kDouble).mul(rstd), g = dy.to(at::kDouble).mul(w);
  at::Tensor dx, dw;
  if (wanted[0]) dx = g.sub(normal.mul(g.mul(normal).mean({-1}, true))).mul(rstd).to(x.scalar_type());
  if (wanted[1]) dw = dy.to(at::kDouble).mul(normal).reshape({-1, x.size(-1)}).sum(0).to(x.scalar_type());
  torch::jit::drop(*stack, 6);
  torch::jit::push(*stack, dx, dw);
}

// sum, factors, dtype, what the sum and the product are multiplied by, output
void addmm_to_wider(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const c10::IValue* in = stack->data() + stack->size() - 7;
  const at::Tensor sum = in[0].toTensor(), a = in[1].toTensor(), b = in[2].toTensor(), out = in[6].toTensor();
  demand(a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16 && in[3].toScalarType() == at::kFloat &&
             out.scalar_type() == at::kFloat && sum.scalar_type() == at::kFloat,
         "products of bf16 added in fp32");
  const at::Tensor result = sum.addmm(a.to(at::kFloat), b.to(at::kFloat), in[4].toScalar(), in[5].toScalar());
  out.copy_(result);
  torch::jit::drop(*stack, 7);
  torch::jit::push(*stack, out);
}

}  // namespace

void register_gpu_operators() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  static const bool registered = [] {
    library.impl("_flash_attention_forward", torch::CppFunction::makeFromBoxedFunction<&flash_forward>());
    library.impl("_flash_attention_backward", torch::CppFunction::makeFromBoxedFunction<&flash_backward>());
    library.impl("_cudnn_attention_forward", torch::CppFunction::makeFromBoxedFunction<&padded_forward>());
    library.impl("_cudnn_attention_backward", torch::CppFunction::makeFromBoxedFunction<&padded_backward>());
    library.impl("_fused_rms_norm_backward", torch::CppFunction::makeFromBoxedFunction<&rms_norm_backward>());
    library.impl("addmm.dtype_out", torch::CppFunction::makeFromBoxedFunction<&addmm_to_wider>());
    return true;
  }();
  static_cast<void>(registered);
}

FlashAttentionCalls flash_attention_calls() { return {forward_calls, backward_calls}; }
FlashAttentionCalls padded_attention_calls() { return {padded_forward_calls, padded_backward_calls}; }

}  // namespace switchyard::standin
