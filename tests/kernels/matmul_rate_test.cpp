#include "kernels/matmul_rate.hpp"

#include <gtest/gtest.h>

#include "kernels/memory.hpp"

namespace switchyard::kernels {
namespace {

TEST(MatmulRate, UsesNoMemoryOfTheRank) {
  install_rank_allocator();
  RankMemory memory(1024);
  const MemoryScope scope(&memory);
  const FlopsPerSecond rate = matmul_rate(at::kFloat, at::Device(at::kCPU), Seconds{0.01});
  EXPECT_GT(rate.count, 1e8) << "slower than any machine";
  EXPECT_LT(rate.count, 1e15) << "faster than any machine";
  EXPECT_EQ(memory.peak(), 0);
}

}  // namespace
}  // namespace switchyard::kernels
