#include "ir/operators/rope.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
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

// Documents of 7 and 3 tokens, of which the first is longer than 4: part of it, padding, and the other one.
TEST(RopeBinding, RotatesByTheLengthOfEachDocument) {
  const config::RopeScaling dynamic{.factor = 2, .original_context = 4, .type = config::RopeScalingType::dynamic};
  const at::Tensor x = wave({7, 8});
  OneCall call(std::make_shared<ir::Rope>(4, false, true));
  call.rope = RopeTables(10000, dynamic);
  call.feeds.weights = nothing({7});
  call.feeds.parts = {{7, 4, 3}, {0, 0, 1}, {3, 0, 3}};
  call.in = {x, integers({0, 1, 2, 3, 4, 5, 6})};
  call.out = {nothing({7, 8})};
  call.run();
  const at::Tensor& y = call.out[0];
  OneCall longer(std::make_shared<ir::Rope>(4, false));
  longer.rope = RopeTables(10000 * std::pow(2 * 7.0 / 4 - 1, 2), {});
  longer.feeds.weights = nothing({3});
  longer.feeds.longest = 7;
  longer.in = {x.narrow(0, 0, 3), integers({4, 5, 6})};
  longer.out = {nothing({3, 8})};
  longer.run();
  EXPECT_LT(gap(y.narrow(0, 0, 3), longer.out[0]), 1e-14);
  EXPECT_TRUE(y.narrow(0, 4, 3).equal(turned(x.narrow(0, 4, 3), integers({0, 1, 2}), false)));
  const at::Tensor first = call.rope.of(4, call.feeds).first;
  EXPECT_EQ(call.rope.of(4, call.feeds).first.data_ptr(), first.data_ptr()) << "a micro-batch's are made once";
  EXPECT_EQ(first.size(0), 7);
}

TEST(RopeBinding, RefusesTablesOfAnotherScaling) {
  OneCall call(std::make_shared<ir::Rope>(4, false, true));
  call.feeds.weights = nothing({1});
  call.in = {wave({1, 8}), integers({0})};
  call.out = {nothing({1, 8})};
  EXPECT_THROW(call.run(), InternalError);
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
