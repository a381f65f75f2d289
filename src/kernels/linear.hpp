// Matrix products of packed rows. T tokens, I in-features, O out-features. All tensors may have a row stride larger
// than their width (column views of a fused buffer); the last dim is dense. Work is queued on the current stream.
#pragma once

namespace at {
class Tensor;
}  // namespace at

namespace switchyard::kernels {

/// y = x w^T (+ bias).   x (T, I)   w (O, I)   bias (O) or undefined   y (T, O), overwritten
void linear(at::Tensor& y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);
/// dx = dy w, or dx += dy w if `accumulate`.   dy (T, O)   w (O, I)   dx (T, I)
void linear_dx(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w, bool accumulate);
/// dw += dy^T x.   dy (T, O)   x (T, I)   dw (O, I) in the state dtype (fp32 for bf16 inputs)
void linear_dw(at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x);
/// db += sum over T of dy.   dy (T, O)   db (O) in the state dtype
void bias_dw(at::Tensor& db, const at::Tensor& dy);

}  // namespace switchyard::kernels
