// RMSNorm (arXiv 1910.07467) and LayerNorm (arXiv 1607.06450) over the last dim. Statistics in fp32 or wider.
// Per-head norms (Qwen3) are the same functions: x (T, n*D) with w (D) is normalised per group of D, statistics (T, n).
#pragma once

#include <cstdint>

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

// The same norms of rows whose features lie on several ranks: each rank computes with its features, and between two of
// these functions the caller adds up the statistics of all ranks. x, y, dx, dy (T, h)   w, b (h), h of H features in
// all. mean: undefined for RMSNorm, whose mean is 0.   mean, variance, rstd (T), terms (1 or 2, T) state dtype.

/// This rank's part of the mean: sum_h x / H.
void norm_mean(at::Tensor& mean, const at::Tensor& x, std::int64_t H);
/// This rank's part of the biased variance: sum_h (x - mean)^2 / H.
void norm_variance(at::Tensor& variance, const at::Tensor& x, const at::Tensor& mean, std::int64_t H);
/// rstd holds the variance and becomes 1 / sqrt(variance + eps);  y = (x - mean) * rstd * w + b.   b: may be undefined
void norm_rows(at::Tensor& y, at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
               const at::Tensor& mean, double eps);
/// This rank's parts of the terms of the gradient: sum_h dy w xhat / H and, of LayerNorm, sum_h dy w / H.
void norm_dx_terms(at::Tensor& terms, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& mean, const at::Tensor& rstd, std::int64_t H);
/// dx = rstd (dy w - terms[1] - xhat terms[0]), added to `residual` if it is defined.
void norm_dx_rows(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                  const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& terms, const at::Tensor& residual);

}  // namespace switchyard::kernels
