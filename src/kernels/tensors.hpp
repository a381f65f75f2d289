// Tensors as pointers and strides for loops on CPU, and checks that all kernels share. Internal to kernels.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <initializer_list>

#include "base/dtype.hpp"

namespace switchyard::kernels {

/// A (rows, width) tensor: the last dim is dense, rows are `stride` elements apart.
template <class T>
struct Rows {
  T* data = nullptr;
  i64 stride = 0, rows = 0, width = 0;
  T* operator[](i64 row) const { return data + row * stride; }
};

template <class T>
Rows<T> rows_of(const at::Tensor& x) {
  return {x.mutable_data_ptr<T>(), x.stride(0), x.size(0), x.size(1)};
}
template <class T>
Rows<const T> const_rows_of(const at::Tensor& x) {
  return {x.const_data_ptr<T>(), x.stride(0), x.size(0), x.size(1)};
}

/// InternalError naming the kernel and every tensor's shape and dtype if `holds` is false.
void require(bool holds, const char* kernel, std::initializer_list<const at::Tensor*> tensors);
/// Whether x is (rows, width) with a dense last dim.
bool is_rows(const at::Tensor& x);
bool same_shape(std::initializer_list<const at::Tensor*> tensors);

/// Whether the loops on CPU apply: all tensors are on CPU, and all are fp32 or all fp64. Otherwise the same formula
/// runs as ATen operators.
bool loops_apply(std::initializer_list<const at::Tensor*> tensors);
/// Calls f.operator()<float>() or <double>(), by the dtype of x.
template <class F>
void with_real(const at::Tensor& x, F&& f) {
  if (x.scalar_type() == at::kFloat) {
    f.template operator()<float>();
  } else {
    f.template operator()<double>();
  }
}

/// Calls f(begin, end) for parts of [0, rows) on all threads, with at least about 16k elements per part.
template <class F>
void parallel_rows(i64 rows, i64 width, const F& f) {
  at::parallel_for(0, rows, std::max<i64>(1, 16384 / std::max<i64>(width, 1)), f);
}

}  // namespace switchyard::kernels
