// Each kernel alone at the shapes of one training step, its share of what the machine gives, and the step they add up to.
//
//   kernels_bench [--threads 1,2] [--hidden 512 --layers 8 --heads 8 --kv-heads 4 --ffn 1408 --vocab 8192 --seq 1024 --batch 4]
//
// Shares are of two rates measured here first: a square matrix product of 2048 (for GFLOP/s) and a copy of 256 MiB (for GB/s).
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/activation.hpp"
#include "kernels/attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/rope.hpp"

namespace {

using namespace switchyard;
using namespace switchyard::kernels;

struct Sizes {
  i64 hidden = 512, layers = 8, heads = 8, kv_heads = 4, ffn = 1408, vocab = 8192, seq = 1024, batch = 4;
  i64 dim() const { return hidden / heads; }
  i64 tokens() const { return seq * batch; }
  i64 qkv() const { return (heads + 2 * kv_heads) * dim(); }
  i64 parameters() const { return 2 * vocab * hidden + layers * (hidden * (qkv() + hidden + 3 * ffn) + 2 * hidden) + hidden; }
};

at::Tensor random(at::IntArrayRef shape) { return at::rand(shape).sub_(0.5).mul_(0.1); }

/// Seconds of one call: the best of at least 5 runs and 0.2 s, after one to warm up.
double seconds_of(const std::function<void()>& f) {
  using Clock = std::chrono::steady_clock;
  f();
  double best = 1e9, total = 0;
  for (int runs = 0; runs < 5 || total < 0.2; ++runs) {
    const auto start = Clock::now();
    f();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

struct Rates {
  double flops, bytes;  // per second
};

Rates measured_rates() {
  const at::Tensor a = random({2048, 2048}), b = random({2048, 2048});
  at::Tensor c = random({2048, 2048});
  const at::Tensor from = random({i64{1} << 26});
  const at::Tensor to = at::empty_like(from);
  return {2.0 * std::pow(2048, 3) / seconds_of([&] { at::mm_out(c, a, b); }),
          2.0 * static_cast<double>(from.nbytes()) / seconds_of([&] { to.copy_(from); })};
}

/// Prints one line per kernel and adds up what a step spends.
class Table {
 public:
  explicit Table(Rates rates) : rates_(rates) {
    fmt::print("{:<26}{:>10}{:>10}{:>10}{:>9}{:>8}{:>11}\n", "kernel", "ms", "GFLOP/s", "GB/s", "share", "calls", "ms a step");
  }

  /// A kernel bound by arithmetic (flops > 0) or by memory (bytes). calls: in one step; 0 for a comparison only.
  void line(const std::string& name, i64 calls, double flops, double bytes, const std::function<void()>& f) {
    const double seconds = seconds_of(f);
    const double share = flops > 0 ? flops / seconds / rates_.flops : bytes / seconds / rates_.bytes;
    fmt::print("{:<26}{:>10.3f}{:>10}{:>10}{:>8.0f}%{:>8}{:>11.2f}\n", name, seconds * 1e3,
               flops > 0 ? fmt::format("{:.1f}", flops / seconds / 1e9) : "", bytes > 0 ? fmt::format("{:.1f}", bytes / seconds / 1e9) : "",
               share * 100, calls, seconds * 1e3 * static_cast<double>(calls));
    std::fflush(stdout);
    seconds_ += seconds * static_cast<double>(calls);
    flops_ += flops * static_cast<double>(calls);
  }

  double seconds() const { return seconds_; }
  double flops() const { return flops_; }

 private:
  Rates rates_;
  double seconds_ = 0, flops_ = 0;
};

constexpr double kFloat = 4;  // bytes

/// Forward, input gradient and weight gradient of one matrix.
void linear_lines(Table& table, const std::string& name, i64 calls, i64 tokens, i64 in, i64 out) {
  const at::Tensor x = random({tokens, in}), w = random({out, in}), dy = random({tokens, out});
  at::Tensor y = random({tokens, out}), dx = random({tokens, in}), dw = random({out, in});
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(in) * static_cast<double>(out);
  table.line(name, calls, flops, 0, [&] { linear(y, x, w, {}); });
  table.line(name + " dx", calls, flops, 0, [&] { linear_dx(dx, dy, w, false); });
  table.line(name + " dw", calls, flops, 0, [&] { linear_dw(dw, dy, x); });
}

void norm_lines(Table& table, const Sizes& s, i64 calls) {
  const i64 T = s.tokens(), H = s.hidden;
  const at::Tensor x = random({T, H}), dy = random({T, H}), residual = random({T, H}), w = random({H});
  at::Tensor y = random({T, H}), rstd = random({T, 1}), dx = random({T, H}), dw = random({H});
  const double all = static_cast<double>(T * H) * kFloat;
  table.line("rms_norm", calls, 0, 2 * all, [&] { rms_norm(y, rstd, x, w, 1e-5); });
  table.line("rms_norm_dx", calls, 0, 4 * all, [&] { rms_norm_dx(dx, dy, x, w, rstd, residual); });
  table.line("rms_norm_dw", calls, 0, 2 * all, [&] { rms_norm_dw(dw, dy, x, rstd); });
}

void attention_lines(Table& table, const Sizes& s, const std::string& name, i64 calls, i64 length) {
  const i64 T = s.tokens(), D = s.dim(), K = s.kv_heads * D;
  const at::Tensor qkv = random({T, s.qkv()}), d_out = random({T, s.hidden});
  const at::Tensor q = qkv.narrow(1, 0, s.hidden), k = qkv.narrow(1, s.hidden, K), v = qkv.narrow(1, s.hidden + K, K);
  at::Tensor o = random({T, s.hidden}), lse = random({s.heads, T}), d_qkv = random({T, s.qkv()});
  at::Tensor dq = d_qkv.narrow(1, 0, s.hidden), dk = d_qkv.narrow(1, s.hidden, K), dv = d_qkv.narrow(1, s.hidden + K, K);
  std::vector<AttentionBlock> blocks;
  for (i64 start = 0; start < T; start += length) {
    const int n = static_cast<int>(std::min(length, T - start)), at = static_cast<int>(start);
    blocks.push_back({at, n, at, n, true});
  }
  const double pairs = static_cast<double>(T) * static_cast<double>(std::min(length, T)) / 2;  // what a causal mask leaves
  const double flops = 4.0 * pairs * static_cast<double>(D * s.heads), scale = 1 / std::sqrt(static_cast<double>(D));
  const int dim = static_cast<int>(D);
  table.line(name, calls, flops, 0, [&] { attention(o, lse, q, k, v, blocks, dim, scale); });
  table.line(name + " backward", calls, 2.5 * flops, 0,
             [&] { attention_backward(dq, dk, dv, d_out, q, k, v, o, lse, blocks, dim, scale); });
}

void elementwise_lines(Table& table, const Sizes& s) {
  const i64 T = s.tokens(), H = s.hidden, F = s.ffn;
  const double hidden = static_cast<double>(T * H) * kFloat, wide = static_cast<double>(T * F) * kFloat;
  const at::Tensor gate_up = random({T, 2 * F}), dh = random({T, F}), a = random({T, H});
  at::Tensor h = random({T, F}), d_gate_up = random({T, 2 * F}), y = random({T, H});
  at::Tensor d_gate = d_gate_up.narrow(1, 0, F), d_up = d_gate_up.narrow(1, F, F);
  const at::Tensor gate = gate_up.narrow(1, 0, F), up = gate_up.narrow(1, F, F);
  table.line("swiglu", s.layers, 0, 3 * wide, [&] { swiglu(h, gate, up); });
  table.line("swiglu_dx", s.layers, 0, 5 * wide, [&] { swiglu_dx(d_gate, d_up, dh, gate, up); });
  table.line("add", 2 * s.layers, 0, 3 * hidden, [&] { add(y, y, a); });

  at::Tensor cos, sin, qkv = random({T, s.qkv()});
  const int dim = static_cast<int>(s.dim());
  rope_tables(cos, sin, rope_frequencies(dim, 10000, {}), s.seq, a);
  std::vector<i64> places;
  for (i64 t = 0; t < T; ++t) places.push_back(t % s.seq);
  const at::Tensor positions = at::empty({T}, at::TensorOptions().dtype(at::kLong));
  std::copy(places.begin(), places.end(), positions.mutable_data_ptr<i64>());
  at::Tensor qk = qkv.narrow(1, 0, s.hidden + s.kv_heads * s.dim());  // queries and keys turn alike: one call for both
  table.line("rope (q and k)", 2 * s.layers, 0, 2 * static_cast<double>(qk.numel()) * kFloat,
             [&] { rope(qk, qk, cos, sin, positions, dim, false); });
}

void vocabulary_lines(Table& table, const Sizes& s) {
  const i64 chunk = std::min<i64>(1024, s.tokens()), calls = (s.tokens() + chunk - 1) / chunk;
  linear_lines(table, "head (chunk)", calls, chunk, s.hidden, s.vocab);
  const at::Tensor logits = random({chunk, s.vocab}), weights = random({chunk});
  const at::Tensor ids = at::rand({s.tokens()}).mul_(static_cast<double>(s.vocab)).floor().to(at::kLong), labels = ids.narrow(0, 0, chunk);
  at::Tensor top = random({chunk}), sums = random({2, chunk}), loss = random({chunk}), work = logits.clone();
  const double all = static_cast<double>(logits.numel()) * kFloat;
  table.line("xent_max", calls, 0, all, [&] { xent_max(top, logits); });
  table.line("xent_sums", calls, 0, all, [&] { xent_sums(sums, logits, top, labels, 0); });
  table.line("xent_grad", calls, 0, 2 * all, [&] { xent_grad(work, loss, top, sums, labels, weights, 0); });

  at::Tensor y = random({s.tokens(), s.hidden}), rows = random({s.vocab, s.hidden});
  const double hidden = static_cast<double>(y.numel()) * kFloat;
  table.line("embedding", 1, 0, 2 * hidden, [&] { embedding(y, ids, rows, 0); });
  table.line("embedding_dw", 1, 0, 3 * hidden, [&] { embedding_dw(rows, y, ids, 0); });
}

void optimizer_lines(Table& table, const Sizes& s) {
  const i64 n = s.parameters();
  at::Tensor p = random({n}), m = random({n}), v = at::rand({n}), none;
  const at::Tensor grad = random({n});
  const double all = static_cast<double>(n) * kFloat;
  table.line("sum_of_squares", 1, 0, all, [&] { sum_of_squares(grad); });
  table.line("adamw", 1, 0, 7 * all, [&] { adamw(p, m, v, none, grad, {}, 1); });
}

void step(const Sizes& s, int threads) {
  at::set_num_threads(threads);
  const Rates rates = measured_rates();
  fmt::print("\n{} thread{}: matrix product {:.1f} GFLOP/s, copy {:.1f} GB/s\n", threads, threads == 1 ? "" : "s", rates.flops / 1e9,
             rates.bytes / 1e9);
  Table table(rates);
  linear_lines(table, "q, k, v in one", s.layers, s.tokens(), s.hidden, s.qkv());
  linear_lines(table, "attention out", s.layers, s.tokens(), s.hidden, s.hidden);
  linear_lines(table, "gate and up in one", s.layers, s.tokens(), s.hidden, 2 * s.ffn);
  linear_lines(table, "down", s.layers, s.tokens(), s.ffn, s.hidden);
  attention_lines(table, s, fmt::format("attention {}", s.seq), s.layers, s.seq);
  norm_lines(table, s, 2 * s.layers + 1);
  elementwise_lines(table, s);
  vocabulary_lines(table, s);
  optimizer_lines(table, s);
  const double tokens = static_cast<double>(s.tokens()), peak_seconds = table.flops() / rates.flops;
  fmt::print("step: {:.3f} s in kernels, {:.0f} tokens/s; its {:.1f} GFLOP at the peak of the matrix product: {:.3f} s, {:.0f}%\n",
             table.seconds(), tokens / table.seconds(), table.flops() / 1e9, peak_seconds, 100 * peak_seconds / table.seconds());
  fmt::print("\nfor comparison, not in the step:\n");
  linear_lines(table, "q alone", 0, s.tokens(), s.hidden, s.heads * s.dim());
  linear_lines(table, "k alone", 0, s.tokens(), s.hidden, s.kv_heads * s.dim());
  linear_lines(table, "gate alone", 0, s.tokens(), s.hidden, s.ffn);
  for (const i64 length : {16, 64, 256, 4096}) attention_lines(table, s, fmt::format("attention {}", length), 0, length);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times each kernel at the shapes of one training step"};
  Sizes s;
  std::vector<int> threads{1, 2};
  app.add_option("--threads", threads, "thread counts to measure with")->delimiter(',');
  app.add_option("--hidden", s.hidden, "hidden size");
  app.add_option("--layers", s.layers, "layers");
  app.add_option("--heads", s.heads, "query heads");
  app.add_option("--kv-heads", s.kv_heads, "key/value heads");
  app.add_option("--ffn", s.ffn, "feed-forward size");
  app.add_option("--vocab", s.vocab, "vocabulary size");
  app.add_option("--seq", s.seq, "tokens of one document");
  app.add_option("--batch", s.batch, "documents in the step");
  CLI11_PARSE(app, argc, argv);
  for (const int n : threads) step(s, n);
  return 0;
}
