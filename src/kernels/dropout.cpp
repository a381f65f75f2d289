#include "kernels/dropout.hpp"

#include <ATen/ops/mul.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/tensors.hpp"

namespace switchyard::kernels {
namespace {

constexpr i64 kElements = 1 << 18;  // hashed at once, so that temporaries stay in cache
constexpr double kValues = 1 << 24;

// Rounds of multiply, xor and shift on 64-bit integers; the upper bits are used.
at::Tensor hashed(at::Tensor x) {
  for (const i64 factor : {0x2545f4914f6cdd1d, 0x1b873593cc9e2d51}) {
    x.mul_(factor);
    x.bitwise_xor_(x.bitwise_right_shift(31));
  }
  return x.mul_(0x27d4eb2f165667c5).bitwise_right_shift_(40).bitwise_and_((1 << 24) - 1);
}

}  // namespace

void dropout_choice(at::Tensor& kept, const at::Tensor& keys, const at::Tensor& columns, i64 site, double p) {
  const i64 rows = keys.size(0), width = columns.size(0);
  const i64 threshold = static_cast<i64>(std::lround(p * kValues));
  const auto offset = static_cast<i64>(static_cast<std::uint64_t>(site) * 0x14057b7ef767814fu);  // wraps
  const at::Tensor column = columns.mul(0x5851f42d4c957f2d).add_(offset).unsqueeze(0);
  const i64 chunk = std::max<i64>(1, kElements / std::max<i64>(1, width));
  for (i64 row = 0; row < rows; row += chunk) {
    const i64 count = std::min(chunk, rows - row);
    at::Tensor part = kept.narrow(0, row, count);
    part.copy_(hashed(keys.narrow(0, row, count).unsqueeze(1).bitwise_xor(column)).ge(threshold));
  }
}

void dropout(at::Tensor& y, const at::Tensor& x, const at::Tensor& kept, double p) {
  at::mul_out(y, x, kept);
  y.mul_(1 / (1 - p));
}

}  // namespace switchyard::kernels
