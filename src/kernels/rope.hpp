// Rotary position embedding (arXiv 2104.09864): dimensions i and i + D/2 are a pair, as in Hugging Face's order.
#pragma once

namespace at {
class Tensor;
}  // namespace at

#include <vector>

namespace switchyard::kernels {

/// y = x rotated by the angle of its position, times the tables' scale; inverse: rotated back, times the same (the
/// gradient).  x, y (T, n*D), y may be x.
/// positions (T) i64.   cos, sin (P, D/2) in the state dtype, P above every position
/// errors  InternalError for a position outside the tables (CPU, fp32 and fp64)
void rope(at::Tensor& y, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions,
          int head_dim, bool inverse);
/// Positions [first, first + count) with the frequencies (D/2) by which they are rotated.
struct RopeStretch {
  std::vector<double> frequencies;
  long first = 0, count = 0;
};
/// Tables with a row for each position of the stretches, in their order, on the device and dtype of `like`: scale times
/// cos and sin of position times frequency, each (P, D/2); computed in fp64.
void rope_tables(at::Tensor& cos, at::Tensor& sin, const std::vector<RopeStretch>& stretches, double scale,
                 const at::Tensor& like);

}  // namespace switchyard::kernels
