#include "train/bench_kernels.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "bench_model.hpp"

namespace switchyard::train {
namespace {

using ::testing::HasSubstr;

BenchKernelsSettings small() {
  return {.model = bench_model(), .tokens = 64, .seq = 16, .threads = 1, .seconds = 0.001};
}

TEST(BenchKernels, every_kernel_has_a_time_and_either_arithmetic_or_traffic) {
  const BenchKernelsResult result = bench_kernels(small());
  EXPECT_EQ(result.kernels.size(), 26u);
  for (const KernelFigure& figure : result.kernels) {
    EXPECT_GT(figure.seconds, 0) << figure.name;
    EXPECT_NE(figure.flops > 0, figure.bytes > 0) << figure.name;
    EXPECT_GT(result.share(figure), 0) << figure.name;
  }
  EXPECT_EQ(result.kernels[0].flops, 2.0 * 64 * 32 * 64);  // 64 tokens, hidden 32, 4 + 2 + 2 heads of 8
  EXPECT_EQ(result.kernels.back().bytes, 28.0 * static_cast<double>(config::parameter_count(bench_model())));
}

TEST(BenchKernels, packed_sequences_hold_equal_documents) {
  const BenchKernelsResult result = bench_kernels(small());
  ASSERT_EQ(result.packed.size(), 3u);
  EXPECT_EQ(result.packed[0].squared_lengths, 64 * 64);
  EXPECT_EQ(result.packed[1].squared_lengths, 4 * 16 * 16);
  EXPECT_EQ(result.packed[2].squared_lengths, 16 * 4 * 4);
}

TEST(BenchKernels, the_table_gives_shares_of_the_rate_that_bounds) {
  BenchKernelsResult result{.matmul_flops = 1e9, .copy_bytes = 1e9};
  result.kernels = {{"product", 0.002, 1e6, 0}, {"sum", 0.004, 0, 1e6}};
  result.packed = {{1, 400, 0.2, 0.4}, {2, 200, 0.1, 0.3}};
  EXPECT_EQ(table(result),
            "matrix product 1.0 GFLOP/s, copy 1.0 GB/s\n"
            "kernel                    ms   GFLOP/s      GB/s    share\n"
            "product                2.000       0.5                50%\n"
            "sum                    4.000                 0.2      25%\n"
            "packed attention      squared lengths   forward ms   of one document   backward ms   of one document\n"
            "   1 documents                 100.0%      200.000            100.0%       400.000            100.0%\n"
            "   2 documents                  50.0%      100.000             50.0%       300.000             75.0%\n");
}

TEST(BenchKernels, refuses_micro_batches_without_tokens) {
  BenchKernelsSettings settings = small();
  settings.tokens = 0;
  EXPECT_EQ(message_of<UserError>([&] { bench_kernels(settings); }),
            "bench kernels: --tokens, --seq and --threads must be 1 or more.");
}

}  // namespace
}  // namespace switchyard::train
