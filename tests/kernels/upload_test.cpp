#include "kernels/upload.hpp"

#include <gtest/gtest.h>

#include "../standin/device.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

TEST(Upload, MakesNobodyWait) {
  if (standin::test_device().is_cuda()) GTEST_SKIP() << "pinned memory is CUDA's, which the stand-in device waits for";
  const at::Tensor values = oracle::random({5, 3}, at::kFloat, 1).cpu();
  EXPECT_TRUE(upload(values, at::kCPU).is_same(values));
  const i64 before = standin::host_synchronizations();
  const at::Tensor there = upload(values, standin::device());
  EXPECT_EQ(standin::host_synchronizations(), before);
  oracle::expect_same_bits(there, values, "values");
}

}  // namespace
}  // namespace switchyard::kernels
