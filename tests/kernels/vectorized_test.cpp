#include "kernels/vectorized.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace switchyard::kernels {
namespace {

TEST(Vectorized, ExponentialIsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (float x = -86.9f; x < 88.3f; x += 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(exp_of(x)) - exact) / unit);
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_GT(worst, 0.4) << "the comparison itself is broken: no fp32 result can be this good";
}

TEST(Vectorized, ExponentialHasTheEdgesOfTheRealOne) {
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(exp_of(-200.0f), 0.0f);
  EXPECT_EQ(exp_of(1000.0f), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(exp_of(std::nanf(""))));
  EXPECT_EQ(exp_of(1.0), std::exp(1.0));
}

}  // namespace
}  // namespace switchyard::kernels
