#include <gtest/gtest.h>

#include "test_numbers.hpp"

namespace switchyard::codecs {
namespace {

// Rounding of fp32 itself, of numbers down to the smallest normal one.
double rounding(float a) { return static_cast<double>(a) * 0x1p-22 + 0x1p-127; }

TEST(Scaled, bf16_loses_at_most_2_to_the_minus_8_of_an_element) {
  for (const std::vector<float>& x : hard_blocks()) {
    const std::vector<float> back = there_and_back(Codec::bf16, x);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_LE(std::fabs(back[i] - x[i]), std::fabs(x[i]) * 0x1p-8F + 0x1p-133F) << x[i];
  }
}

TEST(Scaled, int8_loses_at_most_a_252nd_of_the_largest_element) {
  for (const std::vector<float>& x : hard_blocks()) {
    const std::vector<float> back = there_and_back(Codec::int8, x);
    const float a = largest_of(x);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_LE(std::fabs(back[i] - x[i]), a / 252.0 + rounding(a)) << x[i];
  }
}

TEST(Scaled, int4_loses_at_most_a_13_point_8th_of_the_largest_element) {
  for (const std::vector<float>& x : hard_blocks()) {
    const std::vector<float> back = there_and_back(Codec::int4, x);
    const float a = largest_of(x);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_LE(std::fabs(back[i] - x[i]), a / 13.8 + rounding(a)) << x[i];
  }
}

TEST(Scaled, fp8_loses_at_most_a_16th_of_an_element_or_a_little_of_the_largest) {
  for (const std::vector<float>& x : hard_blocks()) {
    const std::vector<float> back = there_and_back(Codec::fp8, x);
    const float a = largest_of(x);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_LE(std::fabs(back[i] - x[i]), std::max(std::fabs(x[i]) / 16.0, a / 448000.0) + rounding(a)) << x[i];
  }
}

// A scale of 1: the largest element is 448, so every other one becomes the nearest number of the format.
TEST(Scaled, fp8_has_the_numbers_of_e4m3) {
  std::vector<float> numbers;
  for (int exponent = -6; exponent <= 8; ++exponent)
    for (int eighths = 8; eighths < 16; ++eighths)
      if (std::ldexp(eighths / 8.0, exponent) <= 448)
        numbers.push_back(static_cast<float>(std::ldexp(eighths / 8.0, exponent)));
  for (int step = 0; step < 8; ++step) numbers.push_back(std::ldexp(static_cast<float>(step), -9));
  for (size_t first = 0; first < numbers.size(); first += 62) {
    std::vector<float> x = {448, -448};
    for (size_t i = first; i < std::min(first + 62, numbers.size()); ++i)
      x.push_back(numbers[i] * (i % 2 ? 1.0F : -1.0F));
    EXPECT_EQ(there_and_back(Codec::fp8, x), x);
  }
  // Ties go to the even neighbour.
  const std::vector<float> ties = {448, 1 + 1 / 16.0F, 1 + 3 / 16.0F, -(2 + 1 / 8.0F), 0x1p-10F, 3 * 0x1p-10F},
                           even = {448, 1, 1 + 2 / 8.0F, -2, 0, 4 * 0x1p-10F};
  EXPECT_EQ(there_and_back(Codec::fp8, ties), even);
}

// Beyond 448 the scale is the next number of bf16.
TEST(Scaled, fp8_maps_the_largest_element_to_at_most_448) {
  const float scale = 1 + 0x1p-7F;
  EXPECT_EQ(there_and_back(Codec::fp8, {448, 1}), (std::vector<float>{448, 1}));
  EXPECT_EQ(there_and_back(Codec::fp8, {448.5F, 1}), (std::vector<float>{448 * scale, scale}));
}

TEST(Scaled, int8_and_int4_have_whole_multiples_of_the_scale) {
  std::vector<float> x = {127, -127, 0, 1, -1, 64, 0.4F, 126.6F, -0.5F, 1.5F};
  const std::vector<float> whole = {127, -127, 0, 1, -1, 64, 0, 127, 0, 2};
  EXPECT_EQ(there_and_back(Codec::int8, x), whole);
  std::vector<float> nibbles = {7, -7, 0, 1, -1, 6.6F, -3.4F};
  const std::vector<float> whole_nibbles = {7, -7, 0, 1, -1, 7, -3};
  EXPECT_EQ(there_and_back(Codec::int4, nibbles), whole_nibbles);
}

TEST(Scaled, a_block_of_zeros_stays_one) {
  for (const Codec codec : {Codec::bf16, Codec::fp8, Codec::int8, Codec::int4})
    for (const float value : there_and_back(codec, std::vector<float>(100))) EXPECT_EQ(value, 0);
}

// Their scale would be below the normal numbers, and its inverse infinite.
TEST(Scaled, zeros_beside_numbers_too_small_for_a_scale_stay_zeros) {
  for (const Codec codec : {Codec::fp8, Codec::int8, Codec::int4})
    EXPECT_EQ(there_and_back(codec, {1e-40F, 0})[1], 0) << name_of(codec);
}

TEST(Scaled, blocks_do_not_share_their_scales) {
  std::vector<float> x(128, 1e-6F);
  x[0] = 1e6F;
  const std::vector<float> back = there_and_back(Codec::int8, x);
  EXPECT_EQ(back[1], 0);
  EXPECT_NEAR(back[64], 1e-6F, 1e-8F);
}

}  // namespace
}  // namespace switchyard::codecs
