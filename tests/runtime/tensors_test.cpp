#include "runtime/tensors.hpp"

#include <gmock/gmock.h>

#include "base/errors.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::HasSubstr;

const layout::Box kShard{2, {10, 20}, {14, 26}};  // 4 x 6

TEST(Tensors, ACopyBetweenViewsLeavesTheRestAlone) {
  const at::Tensor from = wave({1024, 1024});
  at::Tensor to = zeros({1024, 1030}, DType::f64, at::kCPU);
  copy_view(to.narrow(1, 3, 512), from.narrow(1, 500, 512));  // large enough to bypass the caches
  EXPECT_TRUE(to.narrow(1, 3, 512).equal(from.narrow(1, 500, 512)));
  EXPECT_EQ(to.narrow(1, 0, 3).abs().sum().item<double>() + to.narrow(1, 515, 515).abs().sum().item<double>(), 0);
}

TEST(Tensors, AViewSharesMemoryAndHasItsGlobalPosition) {
  at::Tensor shard = wave({4, 6});
  const at::Tensor view = view_of(shard, kShard, {2, {11, 22}, {13, 26}});
  EXPECT_EQ(view.size(0), 2);
  EXPECT_EQ(view.size(1), 4);
  EXPECT_TRUE(view.equal(shard.narrow(0, 1, 2).narrow(1, 2, 4)));
  view.zero_();
  EXPECT_EQ(shard.select(0, 1).select(0, 2).item<double>(), 0);
  EXPECT_NE(shard.select(0, 1).select(0, 1).item<double>(), 0);
}

TEST(Tensors, ABoxOutsideOfTheShardIsRefused) {
  try {
    view_of(wave({4, 6}), kShard, {2, {9, 20}, {14, 26}});
    ADD_FAILURE() << "nothing thrown";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lies outside of shard"));
  }
}

TEST(Tensors, ScalarTypesAreThoseOfTorch) {
  EXPECT_EQ(scalar_type(DType::f64), at::kDouble);
  EXPECT_EQ(scalar_type(DType::f32), at::kFloat);
  EXPECT_EQ(scalar_type(DType::bf16), at::kBFloat16);
  EXPECT_EQ(scalar_type(DType::i64), at::kLong);
  EXPECT_EQ(scalar_type(DType::i32), at::kInt);
  EXPECT_EQ(zeros({2, 3}, DType::f32, at::kCPU).abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace switchyard::runtime
