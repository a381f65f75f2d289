// Works for elements of tensors, and where they run: on GPUs, if nvcc has compiled them. Internal to kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/errors.hpp"
#include "kernels/element_launch.hpp"

namespace switchyard::kernels {

#ifdef SWITCHYARD_CUDA_KERNELS
inline constexpr bool kHasElementKernels = true;
#else
inline constexpr bool kHasElementKernels = false;
#endif

/// Whether the works have kernels for these tensors: on a GPU, and all of one dtype.
inline bool has_element_kernels(std::initializer_list<const at::Tensor*> tensors) {
  const at::ScalarType type = (*tensors.begin())->scalar_type();
  return kHasElementKernels && (type == at::kFloat || type == at::kDouble || type == at::kBFloat16) &&
         std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor* x) { return x->is_cuda() && x->scalar_type() == type; });
}

/// The same for works of states and gradients, which are never in bf16.
inline bool has_state_kernels(std::initializer_list<const at::Tensor*> tensors) {
  return has_element_kernels(tensors) && (*tensors.begin())->scalar_type() != at::kBFloat16;
}

/// Calls f.operator()<T>() with float or double, by the dtype of x.
template <class F>
void with_state_element(const at::Tensor& x, F&& f) {
  if (x.scalar_type() == at::kFloat) return f.template operator()<float>();
  check(x.scalar_type() == at::kDouble, "no element of {}", toString(x.scalar_type()));
  f.template operator()<double>();
}

/// The same, and with Bf16.
template <class F>
void with_element(const at::Tensor& x, F&& f) {
  if (x.scalar_type() == at::kBFloat16) return f.template operator()<Bf16>();
  with_state_element(x, std::forward<F>(f));
}

template <class T>
ElementRows<T> rows_apart(const at::Tensor& x, std::int64_t stride) {
  return {static_cast<T*>(const_cast<void*>(x.const_data_ptr())), stride};
}
template <class T>
ElementRows<T> element_rows(const at::Tensor& x) {
  return rows_apart<T>(x, x.stride(0));
}
/// A vector as the only row of a matrix.
template <class T>
ElementRows<T> element_row(const at::Tensor& x) {
  return rows_apart<T>(x, 0);
}
/// A flat tensor, as works of those read it.
template <class T>
ElementRows<T> flat_rows_of(const at::Tensor& x) {
  return rows_apart<T>(x, kFlatRow);
}

template <class T>
RopeWork<T> rope_work(const at::Tensor& y, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                      const at::Tensor& positions, int head_dim, bool inverse) {
  using W = typename Wide<T>::type;
  return {.y = element_rows<T>(y),
          .x = element_rows<const T>(x),
          .cos = element_rows<const W>(cos),
          .sin = element_rows<const W>(sin),
          .positions = positions.const_data_ptr<std::int64_t>(),
          .tokens = x.size(0),
          .heads = x.size(1) / head_dim,
          .half = head_dim / 2,
          .sign = inverse ? W(-1) : W(1)};
}

template <class T>
SwigluWork<T> swiglu_work(const at::Tensor& h, const at::Tensor& gate, const at::Tensor& up) {
  return {.h = element_rows<T>(h),
          .gate = element_rows<const T>(gate),
          .up = element_rows<const T>(up),
          .count = h.size(0),
          .width = h.size(1)};
}

template <class T>
SwigluGradientWork<T> swiglu_gradient_work(const at::Tensor& dgate, const at::Tensor& dup, const at::Tensor& dh,
                                           const at::Tensor& gate, const at::Tensor& up) {
  return {.dgate = element_rows<T>(dgate),
          .dup = element_rows<T>(dup),
          .dh = element_rows<const T>(dh),
          .gate = element_rows<const T>(gate),
          .up = element_rows<const T>(up),
          .count = dh.size(0),
          .width = dh.size(1)};
}

template <class T>
RmsNormWork<T> rms_norm_work(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w,
                             double eps) {
  using W = typename Wide<T>::type;
  return {.y = element_rows<T>(y),
          .x = element_rows<const T>(x),
          .w = element_row<const T>(w),
          .rstd = rstd.mutable_data_ptr<W>(),
          .count = x.size(0),
          .width = x.size(1),
          .eps = static_cast<W>(eps)};
}

/// residual: may be undefined.
template <class T>
RmsNormGradientWork<T> rms_norm_gradient_work(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x,
                                              const at::Tensor& w, const at::Tensor& rstd, const at::Tensor& residual) {
  return {.dx = element_rows<T>(dx),
          .dy = element_rows<const T>(dy),
          .x = element_rows<const T>(x),
          .w = element_row<const T>(w),
          .residual = residual.defined() ? element_rows<const T>(residual) : ElementRows<const T>{nullptr, 0},
          .rstd = rstd.const_data_ptr<typename Wide<T>::type>(),
          .count = x.size(0),
          .width = x.size(1)};
}

/// partial (NormWeightWork::parts of the rows, width)
template <class T>
NormWeightWork<T> norm_weight_work(const at::Tensor& partial, const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& rstd) {
  using W = typename Wide<T>::type;
  return {.partial = element_rows<W>(partial),
          .dy = element_rows<const T>(dy),
          .x = element_rows<const T>(x),
          .rstd = rstd.const_data_ptr<W>(),
          .count = x.size(0),
          .width = x.size(1)};
}

template <class T>
SumOfExponentialsWork<T> sum_of_exponentials_work(const at::Tensor& sums, const at::Tensor& logits,
                                                  const at::Tensor& top, const at::Tensor& labels, std::int64_t first) {
  using W = typename Wide<T>::type;
  return {.logits = element_rows<const T>(logits),
          .top = top.const_data_ptr<W>(),
          .labels = labels.const_data_ptr<std::int64_t>(),
          .sums = sums.mutable_data_ptr<W>(),
          .count = logits.size(0),
          .width = logits.size(1),
          .first = first};
}

template <class T>
CrossEntropyWork<T> cross_entropy_work(const at::Tensor& logits, const at::Tensor& top, const at::Tensor& sums,
                                       const at::Tensor& labels, const at::Tensor& weights, std::int64_t first) {
  using W = typename Wide<T>::type;
  return {.logits = element_rows<T>(logits),
          .top = top.const_data_ptr<W>(),
          .sums = sums.const_data_ptr<W>(),
          .weights = weights.const_data_ptr<W>(),
          .labels = labels.const_data_ptr<std::int64_t>(),
          .count = logits.size(0),
          .width = logits.size(1),
          .first = first};
}

/// partial: fp64, one for each row of x.
template <class T>
SquaresWork<T> squares_work(const at::Tensor& partial, const at::Tensor& x) {
  return {.x = flat_rows_of<const T>(x), .partial = partial.mutable_data_ptr<double>(), .count = x.numel()};
}

/// copy: bf16, or undefined.
template <class T>
AdamWWork<T> adamw_work(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v, const at::Tensor& copy,
                        const at::Tensor& grad, const AdamWFactors<T>& factors) {
  return {.p = flat_rows_of<T>(p),
          .m = flat_rows_of<T>(m),
          .v = flat_rows_of<T>(v),
          .grad = flat_rows_of<const T>(grad),
          .copy = copy.defined() ? flat_rows_of<Bf16>(copy) : ElementRows<Bf16>{nullptr, kFlatRow},
          .f = factors,
          .count = p.numel()};
}

/// Queues the work on the calling thread's stream of the device.
/// errors  ClusterError with CUDA's words if it does not start
template <class Work>
void run_on_gpu(const Work& work, const at::Device& device) {
  if constexpr (kHasElementKernels) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    const char* fault = launch(work, guard.getStreamNativeHandle(guard.getStream(device)));
    if (fault) throw ClusterError(fmt::format("CUDA did not start a kernel on {}: {}", device.str(), fault));
  }
}

}  // namespace switchyard::kernels
