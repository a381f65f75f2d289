#include "kernels/activation.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>

#include "kernels/element_tensors.hpp"
#include "kernels/tensors.hpp"
#include "kernels/vectorized.hpp"

namespace switchyard::kernels {
namespace {

// Each output element depends only on the input elements at the same index, so outputs may be inputs (ivdep).
template <class T>
SWITCHYARD_LOOPS void swiglu_row(T* h, const T* gate, const T* up, i64 n) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) h[i] = up[i] * gate[i] / (T(1) + exp_of(-gate[i]));
}

// silu'(g) = s (1 + g (1 - s)), s = sigmoid(g)
template <class T>
SWITCHYARD_LOOPS void swiglu_dx_row(T* dgate, T* dup, const T* dh, const T* gate, const T* up, i64 n) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const T g = gate[i], d = dh[i], u = up[i];
    const T s = T(1) / (T(1) + exp_of(-g));
    dgate[i] = d * u * (s * (T(1) + g * (T(1) - s)));
    dup[i] = d * (g * s);
  }
}

template <class T>
SWITCHYARD_LOOPS void add_row(T* y, const T* a, const T* b, i64 n) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

at::ScalarType statistics_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

void swiglu(at::Tensor& h, const at::Tensor& gate, const at::Tensor& up) {
  require(is_rows(h) && is_rows(gate) && is_rows(up) && same_shape({&h, &gate, &up}), "swiglu", {&h, &gate, &up});
  if (h.numel() == 0) return;
  if (has_element_kernels({&h, &gate, &up})) {
    with_element(h, [&]<class T>() { run_on_gpu(swiglu_work<T>(h, gate, up), h.device()); });
    return;
  }
  if (!loops_apply({&h, &gate, &up})) {
    const at::Tensor g = gate.to(statistics_type(gate));
    h.copy_(g.sigmoid().mul_(g).mul_(up));
    return;
  }
  with_real(h, [&]<class T>() {
    const auto h_rows = rows_of<T>(h);
    const auto g_rows = const_rows_of<T>(gate), u_rows = const_rows_of<T>(up);
    parallel_rows(h_rows.rows, h_rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) swiglu_row<T>(h_rows[t], g_rows[t], u_rows[t], h_rows.width);
    });
  });
}

void swiglu_dx(at::Tensor& dgate, at::Tensor& dup, const at::Tensor& dh, const at::Tensor& gate, const at::Tensor& up) {
  require(is_rows(dgate) && is_rows(dup) && is_rows(dh) && is_rows(gate) && is_rows(up) &&
              same_shape({&dgate, &dup, &dh, &gate, &up}),
          "swiglu_dx", {&dgate, &dup, &dh, &gate, &up});
  if (dh.numel() == 0) return;
  if (has_element_kernels({&dgate, &dup, &dh, &gate, &up})) {
    with_element(dh, [&]<class T>() { run_on_gpu(swiglu_gradient_work<T>(dgate, dup, dh, gate, up), dh.device()); });
    return;
  }
  if (!loops_apply({&dgate, &dup, &dh, &gate, &up})) {
    const at::Tensor g = gate.to(statistics_type(gate), /*non_blocking=*/false, /*copy=*/true), s = g.sigmoid(),
                     d = dh.to(statistics_type(gate));
    const at::Tensor dgate_new = s.neg().add_(1).mul_(g).add_(1).mul_(s).mul_(d).mul_(up);
    dup.copy_(g.mul_(s).mul_(d));
    dgate.copy_(dgate_new);
    return;
  }
  with_real(dh, [&]<class T>() {
    const auto dg_rows = rows_of<T>(dgate), du_rows = rows_of<T>(dup);
    const auto d_rows = const_rows_of<T>(dh), g_rows = const_rows_of<T>(gate), u_rows = const_rows_of<T>(up);
    parallel_rows(d_rows.rows, d_rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t)
        swiglu_dx_row<T>(dg_rows[t], du_rows[t], d_rows[t], g_rows[t], u_rows[t], d_rows.width);
    });
  });
}

void gelu(at::Tensor& y, const at::Tensor& x, bool tanh_form) {
  require(same_shape({&y, &x}), "gelu", {&y, &x});
  at::gelu_out(y, x, tanh_form ? "tanh" : "none");
}

void gelu_dx(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x, bool tanh_form) {
  require(same_shape({&dx, &dy, &x}), "gelu_dx", {&dx, &dy, &x});
  at::gelu_backward_out(dx, dy, x, tanh_form ? "tanh" : "none");
}

void add(at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  require(same_shape({&y, &a, &b}), "add", {&y, &a, &b});
  if (y.numel() == 0) return;
  if (!loops_apply({&y, &a, &b}) || !is_rows(y) || !is_rows(a) || !is_rows(b)) {
    at::add_out(y, a, b);
    return;
  }
  with_real(y, [&]<class T>() {
    const auto y_rows = rows_of<T>(y);
    const auto a_rows = const_rows_of<T>(a), b_rows = const_rows_of<T>(b);
    parallel_rows(y_rows.rows, y_rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) add_row<T>(y_rows[t], a_rows[t], b_rows[t], y_rows.width);
    });
  });
}

}  // namespace switchyard::kernels
