// Rotary position embedding (arXiv 2104.09864): dimensions i and i + D/2 are a pair, as in Hugging Face's order.
#pragma once

namespace at {
class Tensor;
}  // namespace at

#include <vector>

namespace switchyard::kernels {

struct RopeScaling {  // "llama3": low frequencies are scaled down; factor 0: none. Lengths in tokens.
  double factor = 0, low_freq_factor = 1, high_freq_factor = 4, original_context = 8192;
};
/// Frequencies (D/2) in fp64, after the llama3 rule.
std::vector<double> rope_frequencies(int head_dim, double theta, const RopeScaling& scaling);

/// y = x rotated by the angle of its position; inverse: rotated back (the gradient).  x, y (T, n*D), y may be x.
/// positions (T) i64.   cos, sin (P, D/2) in the state dtype, P above every position
/// errors  InternalError for a position outside the tables (CPU, fp32 and fp64)
void rope(at::Tensor& y, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions,
          int head_dim, bool inverse);
/// Tables for positions [0, count), on the device and dtype of `like`: cos and sin, each (count, D/2); computed in
/// fp64.
void rope_tables(at::Tensor& cos, at::Tensor& sin, const std::vector<double>& frequencies, long count,
                 const at::Tensor& like);

}  // namespace switchyard::kernels
