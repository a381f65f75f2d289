#include "kernels/optimizer.hpp"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/bfloat16.hpp"
#include "kernels/element_tensors.hpp"
#include "kernels/tensors.hpp"
#include "kernels/vectorized.hpp"

namespace switchyard::kernels {
namespace {

// Elements of one partial sum. It is fixed, so that the norm doesn't depend on the number of threads.
constexpr i64 kChunk = 16384;

template <class T>
AdamWFactors<T> factors_of(const AdamW& s, double clip) {
  const double first = 1 - std::pow(s.beta1, static_cast<double>(s.step)),
               second = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  return {.decay = static_cast<T>(s.lr * s.weight_decay),
          .beta1 = static_cast<T>(s.beta1),
          .beta2 = static_cast<T>(s.beta2),
          .rest1 = static_cast<T>(1 - s.beta1),
          .rest2 = static_cast<T>(1 - s.beta2),
          .rate = static_cast<T>(s.lr / first),
          .correction2 = static_cast<T>(1 / second),
          .eps = static_cast<T>(s.eps),
          .clip = static_cast<T>(clip)};
}

template <class T>
SWITCHYARD_LOOPS void update(T* __restrict p, T* __restrict m, T* __restrict v, const T* __restrict grad,
                             AdamWFactors<T> f, i64 n) {
  for (i64 i = 0; i < n; ++i) {
    const T g = grad[i] * f.clip;
    const T m_new = f.beta1 * m[i] + f.rest1 * g;
    const T v_new = f.beta2 * v[i] + f.rest2 * (g * g);
    m[i] = m_new;
    v[i] = v_new;
    p[i] -= f.decay * p[i] + f.rate * m_new / (sqrt_of(v_new * f.correction2) + f.eps);
  }
}

template <class T>
SWITCHYARD_LOOPS void write_bfloat16(at::BFloat16* __restrict to, const T* __restrict from, i64 n) {
  for (i64 i = 0; i < n; ++i) to[i].x = bfloat16_bits(static_cast<float>(from[i]));
}

template <class To, class From>
SWITCHYARD_LOOPS void convert(To* __restrict to, const From* __restrict from, i64 n) {
  for (i64 i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

template <class T>
SWITCHYARD_SUMS double sum_of_squares_of(const T* x, i64 n) {
  double sum = 0;
  for (i64 i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <class T>
double sum_in_chunks(const T* x, i64 n) {
  std::vector<double> partial(static_cast<std::size_t>((n + kChunk - 1) / kChunk));
  at::parallel_for(0, static_cast<i64>(partial.size()), 2, [&](i64 begin, i64 end) {
    for (i64 c = begin; c < end; ++c) {
      partial[static_cast<std::size_t>(c)] = sum_of_squares_of<T>(x + c * kChunk, std::min(kChunk, n - c * kChunk));
    }
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

template <class T>
void write_compute_copy(at::Tensor& compute_copy, const T* p, i64 begin, i64 n) {
  if (compute_copy.scalar_type() == at::kBFloat16) {
    write_bfloat16(compute_copy.mutable_data_ptr<at::BFloat16>() + begin, p, n);
  } else if (compute_copy.scalar_type() == at::kFloat) {
    convert(compute_copy.mutable_data_ptr<float>() + begin, p, n);
  } else {
    convert(compute_copy.mutable_data_ptr<double>() + begin, p, n);
  }
}

void adamw_by_operators(at::Tensor& p, at::Tensor& m, at::Tensor& v, const at::Tensor& grad, const AdamW& s,
                        double clip) {
  const auto f = factors_of<double>(s, clip);
  const at::Tensor g = grad.mul(clip);
  m.mul_(f.beta1).add_(g, f.rest1);
  v.mul_(f.beta2).add_(g.mul(g), f.rest2);
  p.sub_(m.div(v.mul(f.correction2).sqrt_().add_(f.eps)).mul_(f.rate).add_(p, f.decay));
}

/// One kernel of libtorch for each update. It has a factor of the gradient, too, but in fp32 only.
void adamw_fused(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v, const at::Tensor& grad, const AdamW& s,
                 double clip) {
  if (clip != 1) grad.mul_(clip);
  const at::Tensor step = at::full({}, s.step, p.options().dtype(at::kFloat));
  at::_fused_adamw_({p}, {grad}, {m}, {v}, {}, {step}, s.lr, s.beta1, s.beta2, s.weight_decay, s.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

bool is_flat(const at::Tensor& x) { return x.dim() == 1 && x.is_contiguous(); }

}  // namespace

void adamw(at::Tensor& p, at::Tensor& m, at::Tensor& v, at::Tensor& compute_copy, const at::Tensor& grad,
           const AdamW& settings, double clip) {
  require(is_flat(p) && is_flat(m) && is_flat(v) && is_flat(grad) && same_shape({&p, &m, &v, &grad}) &&
              (!compute_copy.defined() || (is_flat(compute_copy) && compute_copy.numel() == p.numel())),
          "adamw", {&p, &m, &v, &compute_copy, &grad});
  if (p.numel() == 0) return;
  const bool separate_compute_copy = compute_copy.defined() && compute_copy.const_data_ptr() != p.const_data_ptr();
  const bool known_compute_copy =
      !separate_compute_copy ||
      (compute_copy.is_cpu() && (compute_copy.scalar_type() == at::kBFloat16 || loops_apply({&compute_copy})));
  const at::Tensor copy = separate_compute_copy ? compute_copy : at::Tensor();
  if (has_state_kernels({&p, &m, &v, &grad}) && (!copy.defined() || copy.scalar_type() == at::kBFloat16))
    return with_state_element(p, [&]<class T>() {
      run_on_gpu(adamw_work<T>(p, m, v, copy, grad, factors_of<T>(settings, clip)), p.device());
    });
  const auto is_like_p = [&](const at::Tensor& x) { return !x.is_cpu() && x.scalar_type() == p.scalar_type(); };
  if (is_like_p(m) && is_like_p(v) && is_like_p(grad)) {
    adamw_fused(p, m, v, grad, settings, clip);
    if (separate_compute_copy) compute_copy.copy_(p);
    return;
  }
  if (!loops_apply({&p, &m, &v, &grad}) || !known_compute_copy) {
    adamw_by_operators(p, m, v, grad, settings, clip);
    if (separate_compute_copy) compute_copy.copy_(p);
    return;
  }
  with_real(p, [&]<class T>() {
    T *p_data = p.mutable_data_ptr<T>(), *m_data = m.mutable_data_ptr<T>(), *v_data = v.mutable_data_ptr<T>();
    const T* g_data = grad.const_data_ptr<T>();
    const auto factors = factors_of<T>(settings, clip);
    const i64 n = p.numel();
    at::parallel_for(0, (n + kChunk - 1) / kChunk, 2, [&](i64 begin, i64 end) {
      for (i64 i = begin * kChunk; i < std::min(n, end * kChunk); i += kChunk) {
        const i64 count = std::min(kChunk, n - i);
        update<T>(p_data + i, m_data + i, v_data + i, g_data + i, factors, count);
        if (separate_compute_copy) write_compute_copy<T>(compute_copy, p_data + i, i, count);
      }
    });
  });
}

void add_sum_of_squares(at::Tensor& total, const at::Tensor& x) {
  require(is_flat(x) && total.numel() == 1 && total.scalar_type() == at::kDouble, "add_sum_of_squares", {&total, &x});
  if (loops_apply({&x}))
    return with_real(
        x, [&]<class T>() { *total.mutable_data_ptr<double>() += sum_in_chunks<T>(x.const_data_ptr<T>(), x.numel()); });
  if (x.numel() == 0) return;
  if (has_state_kernels({&x})) {
    const at::Tensor partial = at::empty({flat_rows(x.numel())}, total.options());
    with_state_element(x, [&]<class T>() { run_on_gpu(squares_work<T>(partial, x), x.device()); });
    total.add_(partial.sum());
    return;
  }
  constexpr i64 kPart = i64{1} << 24;  // elements that are copied to fp64 at a time
  for (i64 begin = 0; begin < x.numel(); begin += kPart) {
    const at::Tensor part = x.narrow(0, begin, std::min(kPart, x.numel() - begin)).to(at::kDouble);
    total.add_(part.dot(part));
  }
}

}  // namespace switchyard::kernels
