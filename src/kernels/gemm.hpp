// One matrix product on the calling thread's memory, for tiles too small to be tensors. Internal to kernels.
#pragma once

#include "base/dtype.hpp"

namespace switchyard::kernels {

template <class T>
struct Matrix {  // row-major, rows `stride` elements apart
  const T* data;
  i64 stride;
  bool transposed = false;
};

/// C (m, n) = alpha * A (m, k) * B (k, n) + beta * C, A and B as they are after their transposition. beta = 0 overwrites, also NaN.
/// Served by the BLAS inside libtorch. Inside a parallel region it runs on the calling thread alone.
void gemm(i64 m, i64 n, i64 k, float alpha, Matrix<float> a, Matrix<float> b, float beta, float* c, i64 c_stride);
void gemm(i64 m, i64 n, i64 k, double alpha, Matrix<double> a, Matrix<double> b, double beta, double* c, i64 c_stride);

}  // namespace switchyard::kernels
