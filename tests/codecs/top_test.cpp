#include <gtest/gtest.h>

#include <algorithm>

#include "base/bfloat16.hpp"
#include "test_numbers.hpp"

namespace switchyard::codecs {
namespace {

TEST(Top, the_largest_elements_of_each_block_are_kept_and_others_become_zero) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<float> x = random_numbers(600, seed), back = there_and_back(Codec::top_k, x);
    for (size_t first = 0; first < x.size(); first += 256) {
      const size_t n = std::min<size_t>(256, x.size() - first), kept = (n + 31) / 32;
      std::vector<float> magnitudes;
      for (size_t i = first; i < first + n; ++i) magnitudes.push_back(std::fabs(x[i]));
      std::sort(magnitudes.rbegin(), magnitudes.rend());
      for (size_t i = first; i < first + n; ++i)
        EXPECT_EQ(back[i], std::fabs(x[i]) >= magnitudes[kept - 1] ? bfloat16_value(bfloat16_bits(x[i])) : 0);
    }
  }
}

TEST(Top, of_equal_elements_the_earlier_ones_are_kept) {
  const std::vector<float> back = there_and_back(Codec::top_k, std::vector<float>(256, -3));
  for (size_t i = 0; i < back.size(); ++i) EXPECT_EQ(back[i], i < 8 ? -3 : 0);
}

TEST(Top, a_block_of_one_element_keeps_it) {
  EXPECT_EQ(there_and_back(Codec::top_k, {2.5F}), (std::vector<float>{2.5F}));
}

}  // namespace
}  // namespace switchyard::codecs
