#include "kernels/dropout.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

at::Tensor numbers(i64 first, i64 count) {
  std::vector<i64> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return oracle::integers(values);
}

// Keys with random bits, like those of tokens.
at::Tensor keys(i64 first, i64 count) { return numbers(first, count).mul_(0x61c8864680b583eb); }

at::Tensor chosen(const at::Tensor& keys, const at::Tensor& columns, i64 site, double p) {
  at::Tensor kept = at::empty({keys.size(0), columns.size(0)}, oracle::there(at::kByte));
  dropout_choice(kept, keys, columns, site, p);
  return kept;
}

TEST(Dropout, KeepsTheShareThatIsLeft) {
  for (const double p : {0.0, 0.1, 0.5, 0.9})
    EXPECT_NEAR(chosen(keys(0, 1000), numbers(0, 300), 1, p).to(at::kDouble).mean().item<double>(), 1 - p, 0.005) << p;
}

TEST(Dropout, TheChoiceForAnElementIsTheSameInAnyPart) {
  const at::Tensor whole = chosen(keys(0, 700), numbers(0, 500), 1, 0.4);
  EXPECT_TRUE(chosen(keys(100, 50), numbers(77, 9), 1, 0.4).equal(whole.narrow(0, 100, 50).narrow(1, 77, 9)));
  EXPECT_FALSE(chosen(keys(0, 700), numbers(0, 500), 2, 0.4).equal(whole));
}

TEST(Dropout, ScalesWhatItKeepsInPlaceToo) {
  for (const auto type : oracle::kTypes) {
    const at::Tensor x = oracle::random({20, 30}, type, 1), kept = chosen(keys(0, 20), numbers(0, 30), 1, 0.25);
    at::Tensor y = oracle::hole({20, 30}, type), in_place = x.clone();
    dropout(y, x, kept, 0.25);
    dropout(in_place, in_place, kept, 0.25);
    EXPECT_TRUE(y.equal(in_place));
    EXPECT_LT(y.to(at::kDouble).sub(x.to(at::kDouble).mul(kept).div(0.75)).abs().max().item<double>(),
              oracle::tolerance_of(type) * 4);
  }
}

}  // namespace
}  // namespace switchyard::kernels
