// RMSNorm (arXiv 1910.07467) and LayerNorm (arXiv 1607.06450) over the last dim. Statistics in fp32 or wider.
// Per-head norms (Qwen3) are the same functions: x (T, n*D) with w (D) is normalised per group of D, statistics (T, n).
#pragma once

namespace at {
class Tensor;
}  // namespace at

namespace switchyard::kernels {

/// y = x * rstd * w,  rstd = 1 / sqrt(mean(x^2) + eps).
/// x, y (T, H)   w (G), G divides H   rstd (T, H / G) state dtype
void rms_norm(at::Tensor& y, at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w, double eps);
/// dx = gradient, or residual + gradient in one pass if `residual` (T, H) is defined. Overwrites dx. Shapes as above.
void rms_norm_dx(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, const at::Tensor& rstd,
                 const at::Tensor& residual);
/// dw += sum over T (and groups) of dy * x * rstd.   dw (G) state dtype
void rms_norm_dw(at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd);

/// y = (x - mean) * rstd * w + b, biased variance.   mean, rstd (T) state dtype
void layer_norm(at::Tensor& y, at::Tensor& mean, at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w,
                const at::Tensor& b, double eps);
void layer_norm_dx(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& residual);
/// dw += sum_T dy * xhat,  db += sum_T dy.
void layer_norm_dw(at::Tensor& dw, at::Tensor& db, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                   const at::Tensor& rstd);

}  // namespace switchyard::kernels
