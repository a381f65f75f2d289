#include "gpu_operators.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace switchyard::standin {
namespace {

std::atomic<std::int64_t> forward_calls = 0, backward_calls = 0;

void demand(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("stand-in flash attention: " + what);
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

// What both operators are called with. Operators have more arguments in later releases; those here keep their places.
struct Call {
  Call(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const c10::IValue* rest)
      : like(query), q(query), k(key), v(value), causal(rest[5].toBool()), scale(0) {
    const at::Tensor ends[2] = {rest[0].toTensor(), rest[1].toTensor()};
    for (const at::Tensor& end : ends)
      demand(end.scalar_type() == at::kInt && end.is_contiguous() && end.dim() == 1, "ends of sequences");
    demand(ends[0].numel() == ends[1].numel() && ends[0].numel() > 1, "as many sequences of queries as of keys");
    for (int side = 0; side < 2; ++side) {
      const int* end = ends[side].const_data_ptr<int>();
      (side == 0 ? query_ends : key_ends).assign(end, end + ends[side].numel());
    }
    demand(query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf, "only fp16 and bf16");
    demand(query.dim() == 3 && query.size(2) % 8 == 0 && query.size(2) <= 256, "heads in steps of 8, up to 256");
    for (const at::Tensor* x : {&query, &key, &value}) {
      demand(x->scalar_type() == query.scalar_type() && x->stride(2) == 1, "dense heads of one dtype");
      demand_alignment(*x);
    }
    demand(query.size(1) % key.size(1) == 0 && key.sizes() == value.sizes(), "heads of keys divide those of queries");
    demand(rest[2].toInt() > 1, "for one query a sequence the kernel has another form");
    demand(rest[4].toDouble() == 0, "no dropout");
    for (std::size_t s = 0; s < sequences(); ++s) {
      demand(queries(s) >= 0 && queries(s) <= rest[2].toInt(), "sequences of queries are not longer than told");
      demand(keys(s) >= 0 && keys(s) <= rest[3].toInt(), "sequences of keys are not longer than told");
    }
    demand(query_ends.back() <= query.size(0) && key_ends.back() <= key.size(0), "sequences end with the rows");
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

  const at::Tensor& like;
  Heads q, k, v;
  std::vector<std::int64_t> query_ends, key_ends;
  bool causal;
  double scale;
};

// query, key, value, ends of queries, of keys, the longest of both, dropout, causal, mask wanted, scale
void forward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++forward_calls;
  const std::size_t count = op.schema().arguments().size();
  const c10::IValue* in = stack->data() + stack->size() - count;
  const at::Tensor query = in[0].toTensor();
  Call call(query, in[1].toTensor(), in[2].toTensor(), in + 3);
  call.scale = in[10].toDouble();
  const std::int64_t dim = query.size(2);
  const Heads out = unwritten(query);
  const at::Tensor lse = at::full({query.size(1), query.size(0)}, NAN, query.options().dtype(at::kFloat));
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
    lse.mutable_data_ptr<float>()[head * query.size(0) + row] =
        seen > 0 ? static_cast<float>(top + std::log(sum)) : INFINITY;
  });
  const at::Tensor none = at::empty({0}, query.options());
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, out.values.to(query.scalar_type()), lse, none, none, none);
}

// gradient of the output, query, key, value, output, lse, ends of queries, of keys, the longest of both, dropout,
// causal, state of random numbers, unused, scale
void backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++backward_calls;
  const std::size_t count = op.schema().arguments().size();
  const c10::IValue* in = stack->data() + stack->size() - count;
  const at::Tensor query = in[1].toTensor(), lse = in[5].toTensor();
  for (const int i : {0, 4}) {
    demand(in[i].toTensor().scalar_type() == query.scalar_type(), "outputs in one dtype");
    demand_alignment(in[i].toTensor());
  }
  demand(lse.is_contiguous() && lse.scalar_type() == at::kFloat && lse.size(0) == query.size(1), "lse (heads, rows)");
  Call call(query, in[2].toTensor(), in[3].toTensor(), in + 6);
  call.scale = in[14].toDouble();
  const Heads d_out(in[0].toTensor()), out(in[4].toTensor());
  const Heads dq = unwritten(query), dk = unwritten(in[2].toTensor()), dv = unwritten(in[3].toTensor());
  const std::int64_t dim = query.size(2);
  for (const Heads* gradient : {&dk, &dv})
    if (call.key_ends.back() > 0) gradient->values.narrow(0, 0, call.key_ends.back()).zero_();
  call.each_query([&](std::int64_t row, std::int64_t head, std::int64_t first, std::int64_t seen) {
    const double* d = d_out.at(row, head);
    const double total = lse.const_data_ptr<float>()[head * query.size(0) + row],
                 delta = dot(d, out.at(row, head), dim);
    std::fill_n(dq.at(row, head), dim, 0);
    for (std::int64_t j = first; j < first + seen; ++j) {
      const std::int64_t kv = call.key_head(head);
      const double p = std::exp(call.scale * dot(call.q.at(row, head), call.k.at(j, kv), dim) - total);
      const double ds = call.scale * p * (dot(d, call.v.at(j, kv), dim) - delta);
      add(dq.at(row, head), ds, call.k.at(j, kv), dim);
      add(dk.at(j, kv), ds, call.q.at(row, head), dim);
      add(dv.at(j, kv), p, d, dim);
    }
  });
  torch::jit::drop(*stack, count);
  const auto rounded = [&](const Heads& x) { return x.values.to(query.scalar_type()); };
  torch::jit::push(*stack, rounded(dq), rounded(dk), rounded(dv));
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
    library.impl("_flash_attention_forward", torch::CppFunction::makeFromBoxedFunction<&forward>());
    library.impl("_flash_attention_backward", torch::CppFunction::makeFromBoxedFunction<&backward>());
    library.impl("_fused_rms_norm_backward", torch::CppFunction::makeFromBoxedFunction<&rms_norm_backward>());
    library.impl("addmm.dtype_out", torch::CppFunction::makeFromBoxedFunction<&addmm_to_wider>());
    return true;
  }();
  static_cast<void>(registered);
}

FlashAttentionCalls flash_attention_calls() { return {forward_calls, backward_calls}; }

}  // namespace switchyard::standin
