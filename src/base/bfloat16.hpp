// bfloat16 as its bits, the upper half of an fp32: one rounding for messages, files and kernels, the same as torch's.
#pragma once

#include <cstdint>

namespace switchyard {

/// x rounded to nearest, ties to even; any NaN becomes 0x7fc0. There are no branches, so that loops around it
/// vectorize.
[[gnu::always_inline]] constexpr std::uint16_t bfloat16_bits(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const auto nan = -static_cast<std::uint32_t>(x != x);
  // Half of the last kept bit is added, and one less where that bit is 0: ties go to even.
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((rounded & ~nan) | (0x7fc0u & nan));
}

[[gnu::always_inline]] constexpr float bfloat16_value(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace switchyard
