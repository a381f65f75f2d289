#include "base/bfloat16.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace switchyard {
namespace {

TEST(Bfloat16, every_value_is_its_own_rounding) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bfloat16_value(static_cast<std::uint16_t>(bits));
    EXPECT_EQ(bfloat16_bits(value), std::isnan(value) ? 0x7fc0u : bits);
  }
}

TEST(Bfloat16, rounds_to_nearest_and_ties_to_even) {
  // The numbers next to 1 are 1 + n/128.
  EXPECT_EQ(bfloat16_value(bfloat16_bits(1 + 0.4f / 128)), 1);
  EXPECT_EQ(bfloat16_value(bfloat16_bits(1 + 0.6f / 128)), 1 + 1.0f / 128);
  EXPECT_EQ(bfloat16_value(bfloat16_bits(1 + 0.5f / 128)), 1);
  EXPECT_EQ(bfloat16_value(bfloat16_bits(1 + 1.5f / 128)), 1 + 2.0f / 128);
  EXPECT_EQ(bfloat16_value(bfloat16_bits(-1 - 1.5f / 128)), -1 - 2.0f / 128);
}

TEST(Bfloat16, what_is_too_large_becomes_infinite_and_nan_stays_nan) {
  EXPECT_EQ(bfloat16_value(bfloat16_bits(std::numeric_limits<float>::max())), std::numeric_limits<float>::infinity());
  EXPECT_EQ(bfloat16_value(bfloat16_bits(-std::numeric_limits<float>::infinity())),
            -std::numeric_limits<float>::infinity());
  // A NaN with only its last bits set would become infinite, one with all bits set would overflow to zero.
  EXPECT_TRUE(std::isnan(bfloat16_value(bfloat16_bits(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(bfloat16_value(bfloat16_bits(std::bit_cast<float>(0xffffffffu)))));
}

}  // namespace
}  // namespace switchyard
