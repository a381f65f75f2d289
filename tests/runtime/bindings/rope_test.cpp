#include "ir/operators/rope.hpp"

#include <gtest/gtest.h>

#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

at::Tensor turned(const at::Tensor& x, const at::Tensor& positions, bool inverse) {
  OneCall call(std::make_shared<ir::Rope>(4, inverse));
  call.feeds.weights = nothing({x.size(0)});
  call.feeds.longest = 8;
  call.in = {x, positions};
  call.out = {nothing({x.size(0), x.size(1)})};
  call.run();
  return call.out[0];
}

TEST(RopeBinding, RotatesEveryHeadByTheAngleOfThePosition) {
  const at::Tensor x = wave({3, 8}), y = turned(x, integers({0, 1, 7}), false);
  EXPECT_TRUE(y.select(0, 0).equal(x.select(0, 0)));
  for (const i64 head : {0, 1})
    for (const i64 i : {0, 1}) {
      const double angle = 7 * (i == 0 ? 1.0 : 0.01);  // 10000^(-2i/4)
      const double a = x.select(0, 2).select(0, 4 * head + i).item<double>(),
                   b = x.select(0, 2).select(0, 4 * head + i + 2).item<double>();
      EXPECT_NEAR(y.select(0, 2).select(0, 4 * head + i).item<double>(), a * std::cos(angle) - b * std::sin(angle),
                  1e-14);
      EXPECT_NEAR(y.select(0, 2).select(0, 4 * head + i + 2).item<double>(), b * std::cos(angle) + a * std::sin(angle),
                  1e-14);
    }
}

TEST(RopeBinding, TheInverseRotatesBack) {
  const at::Tensor x = wave({3, 8}), positions = integers({2, 5, 6});
  EXPECT_LT(gap(turned(turned(x, positions, false), positions, true), x), 1e-14);
}

TEST(RopeTables, GrowForLongerDocumentsAndKeepTheirValues) {
  RopeTables tables(10000, {});
  const at::Tensor like = nothing({1});
  const at::Tensor small = tables.get(4, 3, like).first, large = tables.get(4, 40, like).first;
  EXPECT_GE(large.size(0), 40);
  EXPECT_TRUE(large.narrow(0, 0, 3).equal(small.narrow(0, 0, 3)));
  EXPECT_EQ(tables.get(4, 5, like).first.data_ptr(), large.data_ptr());
}

}  // namespace
}  // namespace switchyard::runtime
