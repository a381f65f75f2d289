#include "kernels/gemm.hpp"

extern "C" {
// Fortran BLAS with column-major matrices and 32-bit integers, which libtorch's own operators call.
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c,
            const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c,
            const int* ldc);
// Returns the thread's former setting, 0 for the global one. Null where libtorch is built with another BLAS.
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int threads);
}

namespace switchyard::kernels {
namespace {

// A row-major C = A B is a column-major C^T = B^T A^T of the same memory, so the operands are swapped.
template <class T, class Blas>
void call(Blas blas, i64 m, i64 n, i64 k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c, i64 c_stride) {
  const int rows = static_cast<int>(n), columns = static_cast<int>(m), inner = static_cast<int>(k);
  const int lda = static_cast<int>(b.stride), ldb = static_cast<int>(a.stride), ldc = static_cast<int>(c_stride);
  blas(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &rows, &columns, &inner, &alpha, b.data, &lda, a.data, &ldb,
       &beta, c, &ldc);
}

}  // namespace

ProductsOnThisThread::ProductsOnThisThread() {
  if (MKL_Set_Num_Threads_Local != nullptr) before_ = MKL_Set_Num_Threads_Local(1);
}

ProductsOnThisThread::~ProductsOnThisThread() {
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(before_);
}

void gemm(i64 m, i64 n, i64 k, float alpha, Matrix<float> a, Matrix<float> b, float beta, float* c, i64 c_stride) {
  call(sgemm_, m, n, k, alpha, a, b, beta, c, c_stride);
}

void gemm(i64 m, i64 n, i64 k, double alpha, Matrix<double> a, Matrix<double> b, double beta, double* c, i64 c_stride) {
  call(dgemm_, m, n, k, alpha, a, b, beta, c, c_stride);
}

}  // namespace switchyard::kernels
