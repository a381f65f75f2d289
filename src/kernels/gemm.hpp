// One matrix product on plain pointers, for tiles too small to be tensors. Internal to kernels.
#pragma once

#include "base/dtype.hpp"

namespace switchyard::kernels {

template <class T>
struct Matrix {  // row-major, rows `stride` elements apart
  const T* data;
  i64 stride;
  bool transposed = false;
};

/// While it exists, products of the calling thread use only this thread. Otherwise MKL would open a nested parallel
/// region of one thread for each small product, which takes 2 to 3 us. Without MKL it does nothing.
class ProductsOnThisThread {
 public:
  ProductsOnThisThread();
  ~ProductsOnThisThread();
  ProductsOnThisThread(const ProductsOnThisThread&) = delete;
  ProductsOnThisThread& operator=(const ProductsOnThisThread&) = delete;

 private:
  int before_ = 0;
};

/// C (m, n) = alpha * A (m, k) * B (k, n) + beta * C; A and B are meant after their transposition. beta = 0 overwrites
/// C, even NaN. Calls the BLAS inside libtorch.
void gemm(i64 m, i64 n, i64 k, float alpha, Matrix<float> a, Matrix<float> b, float beta, float* c, i64 c_stride);
void gemm(i64 m, i64 n, i64 k, double alpha, Matrix<double> a, Matrix<double> b, double beta, double* c, i64 c_stride);

}  // namespace switchyard::kernels
