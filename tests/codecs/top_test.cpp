#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bfloat16.hpp"
#include "test_numbers.hpp"

namespace switchyard::codecs {
namespace {

TEST(Top, the_largest_elements_of_each_block_are_kept_and_others_become_zero) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const auto [codec, one_of] = seed % 2 == 0 ? std::pair(Codec::top_32, 32) : std::pair(Codec::top_128, 128);
    const std::vector<float> x = random_numbers(600, seed), back = there_and_back(codec, x);
    for (size_t first = 0; first < x.size(); first += 256) {
      const size_t n = std::min<size_t>(256, x.size() - first), kept = (n + one_of - 1) / one_of;
      std::vector<float> magnitudes;
      for (size_t i = first; i < first + n; ++i) magnitudes.push_back(std::fabs(x[i]));
      std::sort(magnitudes.rbegin(), magnitudes.rend());
      for (size_t i = first; i < first + n; ++i)
        EXPECT_EQ(back[i], std::fabs(x[i]) >= magnitudes[kept - 1] ? bfloat16_value(bfloat16_bits(x[i])) : 0);
    }
  }
}

TEST(Top, of_equal_elements_the_earlier_ones_are_kept) {
  const std::vector<float> back = there_and_back(Codec::top_32, std::vector<float>(256, -3));
  for (size_t i = 0; i < back.size(); ++i) EXPECT_EQ(back[i], i < 8 ? -3 : 0);
}

// What is lost of a vector is at most the share of its squares that it would lose if all were equal: from this
// convergence with error feedback follows (arXiv 1809.07599).
TEST(Top, the_squares_that_are_lost_are_at_most_those_of_the_share_that_is_not_kept) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<float> x = random_numbers(1024, seed), back = there_and_back(Codec::top_128, x);
    double lost = 0, all = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      lost += std::pow(x[i] - back[i], 2);
      all += std::pow(x[i], 2);
    }
    EXPECT_LE(lost, (1 - 1.0 / 128) * all * (1 + 1e-4));
  }
}

TEST(Top, a_block_of_one_element_keeps_it) {
  EXPECT_EQ(there_and_back(Codec::top_128, {2.5F}), (std::vector<float>{2.5F}));
}

}  // namespace
}  // namespace switchyard::codecs
