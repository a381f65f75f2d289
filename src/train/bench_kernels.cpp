#include "train/bench_kernels.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "kernels/activation.hpp"
#include "kernels/attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/rope.hpp"
#include "kernels/threads.hpp"
#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

constexpr double kFloat = 4;       // bytes
constexpr i64 kHeadTokens = 1024;  // number of tokens whose logits are computed at a time
constexpr i64 kCopied = i64{1} << 24;
constexpr i64 kSquare = 1024;

at::Tensor random(at::IntArrayRef shape) { return at::rand(shape).sub_(0.5).mul_(0.1); }
double count(const at::Tensor& t) { return static_cast<double>(t.numel()); }

class Bench {
 public:
  explicit Bench(const BenchKernelsSettings& s)
      : s_(s),
        T_(s.tokens),
        H_(s.model.hidden_size),
        F_(s.model.ffn_size),
        D_(s.model.head_dim),
        K_(s.model.kv_heads * s.model.head_dim) {}

  BenchKernelsResult run() {
    const at::Tensor a = random({kSquare, kSquare}), b = random({kSquare, kSquare}), from = random({kCopied});
    at::Tensor product = random({kSquare, kSquare});
    result_.matmul_flops = 2 * count(a) * kSquare / seconds_of([&] { at::mm_out(product, a, b); });
    at::Tensor to = random({kCopied});
    result_.copy_bytes = 2 * kFloat * count(to) / seconds_of([&] { to.copy_(from); });
    linear("q, k, v", T_, H_, H_ + 2 * K_);
    linear("attention out", T_, H_, H_);
    linear("gate and up", T_, H_, 2 * F_);
    linear("down", T_, F_, H_);
    linear("head", std::min(kHeadTokens, T_), H_, s_.model.vocab_size);
    norm();
    swiglu();
    rope();
    cross_entropy();
    adamw();
    for (const i64 parts : {1, 4, 16})
      if (parts <= T_) packed(parts);
    return std::move(result_);
  }

 private:
  using Work = std::function<void()>;

  // The first call warms up.
  double seconds_of(const Work& work) const {
    work();
    double best = 1e9, total = 0;
    for (int calls = 0; calls < 5 || total < s_.seconds; ++calls) {
      const auto start = Clock::now();
      work();
      const double seconds = seconds_since(start);
      best = std::min(best, seconds);
      total += seconds;
    }
    return best;
  }

  void computes(const std::string& name, double flops, const Work& work) {
    result_.kernels.push_back({.name = name, .seconds = seconds_of(work), .flops = flops});
  }
  void moves(const std::string& name, double elements, const Work& work) {
    result_.kernels.push_back({.name = name, .seconds = seconds_of(work), .bytes = elements * kFloat});
  }

  void linear(const std::string& name, i64 tokens, i64 in, i64 out) {
    const at::Tensor x = random({tokens, in}), w = random({out, in}), dy = random({tokens, out});
    at::Tensor y = random({tokens, out}), dx = random({tokens, in}), dw = random({out, in});
    const double flops = 2 * count(x) * static_cast<double>(out);
    computes(name, flops, [&] { kernels::linear(y, x, w, {}); });
    computes(name + " dx", flops, [&] { kernels::linear_dx(dx, dy, w, false); });
    computes(name + " dw", flops, [&] { kernels::linear_dw(dw, dy, x); });
  }

  void norm() {
    const at::Tensor x = random({T_, H_}), dy = random({T_, H_}), residual = random({T_, H_}), w = random({H_});
    at::Tensor y = random({T_, H_}), rstd = random({T_, 1}), dx = random({T_, H_}), dw = random({H_});
    moves("rms_norm", 2 * count(x), [&] { kernels::rms_norm(y, rstd, x, w, s_.model.norm_eps); });
    moves("rms_norm_dx", 4 * count(x), [&] { kernels::rms_norm_dx(dx, dy, x, w, rstd, residual); });
    moves("rms_norm_dw", 2 * count(x), [&] { kernels::rms_norm_dw(dw, dy, x, rstd); });
  }

  void swiglu() {
    const at::Tensor gate_up = random({T_, 2 * F_}), dh = random({T_, F_});
    const at::Tensor gate = gate_up.narrow(1, 0, F_), up = gate_up.narrow(1, F_, F_);
    at::Tensor h = random({T_, F_}), d_gate_up = random({T_, 2 * F_});
    at::Tensor d_gate = d_gate_up.narrow(1, 0, F_), d_up = d_gate_up.narrow(1, F_, F_);
    moves("swiglu", 3 * count(h), [&] { kernels::swiglu(h, gate, up); });
    moves("swiglu_dx", 5 * count(h), [&] { kernels::swiglu_dx(d_gate, d_up, dh, gate, up); });
  }

  // Queries and keys are rotated by the same angles: one call for both.
  void rope() {
    at::Tensor cos, sin, qk = random({T_, H_ + K_});
    const int dim = static_cast<int>(D_);
    const config::Rotation rotation = config::rotation(dim, s_.model.rope_theta, s_.model.rope_scaling, s_.seq);
    kernels::rope_tables(cos, sin, {{rotation.frequencies, 0, s_.seq}}, rotation.scale, qk);
    const at::Tensor positions = at::arange(T_, at::TensorOptions().dtype(at::kLong)).remainder(s_.seq);
    moves("rope", 2 * count(qk), [&] { kernels::rope(qk, qk, cos, sin, positions, dim, false); });
  }

  void cross_entropy() {
    const i64 tokens = std::min(kHeadTokens, T_);
    const at::Tensor logits = random({tokens, s_.model.vocab_size}), weights = random({tokens});
    const at::Tensor labels = at::arange(tokens, at::TensorOptions().dtype(at::kLong)).remainder(s_.model.vocab_size);
    at::Tensor top = random({tokens}), sums = random({2, tokens}), loss = random({tokens}), work = logits.clone();
    moves("xent_max", count(logits), [&] { kernels::xent_max(top, logits); });
    moves("xent_sums", count(logits), [&] { kernels::xent_sums(sums, logits, top, labels, 0); });
    moves("xent_grad", 2 * count(logits), [&] { kernels::xent_grad(work, loss, top, sums, labels, weights, 0); });
  }

  void adamw() {
    const i64 n = config::parameter_count(s_.model);
    at::Tensor p = random({n}), m = random({n}), v = at::rand({n}), compute_copy;
    const at::Tensor grad = random({n});
    at::Tensor squares = at::rand({1}, at::kDouble);
    moves("sum_of_squares", count(p), [&] { kernels::add_sum_of_squares(squares, grad); });
    moves("adamw", 7 * count(p), [&] { kernels::adamw(p, m, v, compute_copy, grad, {}, 1); });
  }

  void packed(i64 documents) {
    const at::Tensor qkv = random({T_, H_ + 2 * K_}), d_out = random({T_, H_});
    const at::Tensor q = qkv.narrow(1, 0, H_), k = qkv.narrow(1, H_, K_), v = qkv.narrow(1, H_ + K_, K_);
    at::Tensor o = random({T_, H_}), lse = random({s_.model.heads, T_}), d_qkv = random({T_, H_ + 2 * K_});
    at::Tensor dq = d_qkv.narrow(1, 0, H_), dk = d_qkv.narrow(1, H_, K_), dv = d_qkv.narrow(1, H_ + K_, K_);
    PackedFigure figure{.documents = documents};
    std::vector<kernels::AttentionBlock> blocks;
    for (i64 d = 0; d < documents; ++d) {
      const int at = static_cast<int>(T_ * d / documents), n = static_cast<int>(T_ * (d + 1) / documents) - at;
      blocks.push_back({.q = at, .qn = n, .k = at, .kn = n, .causal = true});
      figure.squared_lengths += i64{n} * n;
    }
    const int dim = static_cast<int>(D_);
    const double scale = 1 / std::sqrt(static_cast<double>(D_));
    figure.forward = seconds_of([&] { kernels::attention(o, lse, q, k, v, blocks, dim, scale); });
    figure.backward =
        seconds_of([&] { kernels::attention_backward(dq, dk, dv, d_out, q, k, v, o, lse, blocks, dim, scale); });
    result_.packed.push_back(figure);
  }

  const BenchKernelsSettings& s_;
  i64 T_, H_, F_, D_, K_;
  BenchKernelsResult result_;
};

}  // namespace

double BenchKernelsResult::share(const KernelFigure& f) const {
  return (f.flops > 0 ? f.flops / matmul_flops : f.bytes / copy_bytes) / f.seconds;
}

BenchKernelsResult bench_kernels(const BenchKernelsSettings& settings) {
  config::validate(settings.model);
  if (settings.tokens < 1 || settings.seq < 1 || settings.threads < 1)
    user_error("bench kernels: --tokens, --seq and --threads must be 1 or more.");
  check_threads(1, settings.threads);
  kernels::set_up_compute_thread(settings.threads);
  return Bench(settings).run();
}

std::string table(const BenchKernelsResult& r) {
  std::string text =
      fmt::format("matrix product {:.1f} GFLOP/s, copy {:.1f} GB/s\n", r.matmul_flops / 1e9, r.copy_bytes / 1e9);
  text += "kernel                    ms   GFLOP/s      GB/s    share\n";
  for (const KernelFigure& f : r.kernels)
    text += fmt::format("{:<18}{:>10.3f}{:>10}{:>10}{:>8.0f}%\n", f.name, f.seconds * 1e3,
                        f.flops > 0 ? fmt::format("{:.1f}", f.flops / f.seconds / 1e9) : "",
                        f.bytes > 0 ? fmt::format("{:.1f}", f.bytes / f.seconds / 1e9) : "", 100 * r.share(f));
  text += "packed attention      squared lengths   forward ms   of one document   backward ms   of one document\n";
  for (const PackedFigure& f : r.packed) {
    const PackedFigure& one = r.packed.front();
    text +=
        fmt::format("{:>4} documents{:>22.1f}%{:>13.3f}{:>17.1f}%{:>14.3f}{:>17.1f}%\n", f.documents,
                    100 * static_cast<double>(f.squared_lengths) / static_cast<double>(one.squared_lengths),
                    f.forward * 1e3, 100 * f.forward / one.forward, f.backward * 1e3, 100 * f.backward / one.backward);
  }
  return text;
}

}  // namespace switchyard::train
