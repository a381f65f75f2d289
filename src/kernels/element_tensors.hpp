// Works for elements of tensors, and where they run: on GPUs, if nvcc has compiled them. Internal to kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <initializer_list>

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

/// Calls f.operator()<T>() with float, double or Bf16, by the dtype of x.
template <class F>
void with_element(const at::Tensor& x, F&& f) {
  if (x.scalar_type() == at::kBFloat16) return f.template operator()<Bf16>();
  if (x.scalar_type() == at::kFloat) return f.template operator()<float>();
  check(x.scalar_type() == at::kDouble, "no element of {}", toString(x.scalar_type()));
  f.template operator()<double>();
}

template <class T>
ElementRows<T> element_rows(const at::Tensor& x) {
  return {static_cast<T*>(const_cast<void*>(x.const_data_ptr())), x.stride(0)};
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
          .rows = h.size(0),
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
          .rows = dh.size(0),
          .width = dh.size(1)};
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
          .rows = logits.size(0),
          .width = logits.size(1),
          .first = first};
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
