#include "kernels/tensors.hpp"

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

TEST(Tensors, RowsFollowTheStrideOfAColumnView) {
  auto x = random({3, 4}, at::kFloat, 1, 6);
  const auto rows = rows_of<float>(x);
  EXPECT_EQ(rows.stride, 10);
  EXPECT_EQ(rows[2][1], static_cast<float>(values(x)[9]));
}

TEST(Tensors, ColumnViewsAreRowsAndTransposesAreNot) {
  const auto x = hole({3, 4}, at::kFloat, 6);
  EXPECT_TRUE(is_rows(x));
  EXPECT_FALSE(is_rows(x.t()));
  EXPECT_FALSE(is_rows(hole({3}, at::kFloat)));
}

TEST(Tensors, LoopsApplyToOneRealTypeOnly) {
  const auto f32 = hole({2}, at::kFloat), f64 = hole({2}, at::kDouble), bf16 = hole({2}, at::kBFloat16);
  EXPECT_TRUE(loops_apply({&f32, &f32}));
  EXPECT_TRUE(loops_apply({&f64}));
  EXPECT_FALSE(loops_apply({&f32, &f64}));
  EXPECT_FALSE(loops_apply({&bf16}));
}

TEST(Tensors, RequireNamesKernelShapesAndTypes) {
  const auto x = hole({2, 3}, at::kFloat), y = hole({0}, at::kBFloat16);
  const at::Tensor none;
  require(true, "any", {&x});
  try {
    require(false, "some_kernel", {&x, &y, &none});
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "some_kernel: these tensors don't fit together: (2, 3) Float, (0) BFloat16, none");
  }
}

TEST(Tensors, ParallelRowsVisitsEachRowOnce) {
  std::vector<int> visits(100000);
  parallel_rows(100000, 3, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
  });
  EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), 100000);
}

}  // namespace
}  // namespace switchyard::kernels
