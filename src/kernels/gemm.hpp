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

/// While it lives, products of the calling thread run on this thread alone. Torch tells MKL to use its threads in
/// parallel regions too; MKL then opens a nested region, of one thread, for each small product: 2 to 3 us a call.
/// Without MKL it does nothing.
class ProductsOnThisThread {
 public:
  ProductsOnThisThread();
  ~ProductsOnThisThread();
  ProductsOnThisThread(const ProductsOnThisThread&) = delete;
  ProductsOnThisThread& operator=(const ProductsOnThisThread&) = delete;

 private:
  int before_ = 0;
};

/// C (m, n) = alpha * A (m, k) * B (k, n) + beta * C, A and B as they are after their transposition. beta = 0
/// overwrites, also NaN. Served by the BLAS inside libtorch.
void gemm(i64 m, i64 n, i64 k, float alpha, Matrix<float> a, Matrix<float> b, float beta, float* c, i64 c_stride);
void gemm(i64 m, i64 n, i64 k, double alpha, Matrix<double> a, Matrix<double> b, double beta, double* c, i64 c_stride);

}  // namespace switchyard::kernels
