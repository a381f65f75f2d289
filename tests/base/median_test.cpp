#include "base/median.hpp"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Median, is_the_middle_value_or_the_mean_of_the_middle_two) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 4}), 4);
  EXPECT_EQ(median({2, 1}), 1.5);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
}

}  // namespace
}  // namespace switchyard
