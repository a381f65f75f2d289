#include "base/random.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace switchyard {
namespace {

TEST(Mix, is_the_published_generator) {
  // The first numbers that SplitMix64 gives from seed 0.
  EXPECT_EQ(mix(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
}

TEST(Mix, spreads_a_changed_bit_over_all) {
  int flipped = 0;
  for (int bit = 0; bit < 64; ++bit) flipped += std::popcount(mix(12345) ^ mix(12345 ^ (std::uint64_t{1} << bit)));
  EXPECT_NEAR(flipped / 64.0, 32, 3);
}

}  // namespace
}  // namespace switchyard
