#include "kernels/attention_tiles.hpp"

#include <ctime>

#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

/// Processor time of this thread in seconds, without that of other programs.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Processor time of forward and backward over causal documents of these lengths on one thread, the best of a few runs.
double seconds_of(const std::vector<int>& lengths) {
  std::vector<AttentionBlock> blocks;
  int rows = 0;
  for (const int n : lengths) {
    blocks.push_back({rows, n, rows, n, true});
    rows += n;
  }
  const i64 width = 2 * 32;
  const auto q = random({rows, width}, at::kFloat, 1), k = random({rows, width}, at::kFloat, 2),
             v = random({rows, width}, at::kFloat, 3);
  auto o = hole({rows, width}, at::kFloat), lse = hole({2, rows}, at::kFloat);
  auto dq = hole({rows, width}, at::kFloat), dk = dq.clone(), dv = dq.clone();
  double best = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double start = processor_seconds();
    const AttentionInput<float> in{
        const_rows_of<float>(q), const_rows_of<float>(k), const_rows_of<float>(v), 2, 2, 32, 0.2f};
    attention_tiles<float>(rows_of<float>(o), lse.mutable_data_ptr<float>(), in, blocks, false);
    for (auto* gradient : {&dq, &dk, &dv}) gradient->zero_();
    attention_tiles_backward<float>(rows_of<float>(dq), rows_of<float>(dk), rows_of<float>(dv), const_rows_of<float>(q),
                                    const_rows_of<float>(o), lse.const_data_ptr<float>(), in, blocks);
    best = std::min(best, processor_seconds() - start);
  }
  return best;
}

TEST(AttentionTiles, WorkFollowsTheSquaresOfDocumentLengths) {
  // 2048 rows: one document has 2048^2 attention pairs, eight documents an eighth of them. Time may have a linear part,
  // but must not follow the square of the number of rows.
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_LT(seconds_of(std::vector<int>(8, 256)), 0.5 * seconds_of({2048}));
  at::set_num_threads(threads);
}

TEST(AttentionTiles, RowsOutsideTheBlocksKeepTheirValues) {
  const auto q = random({6, 4}, at::kFloat, 1);
  auto o = filled({6, 4}, at::kFloat, 9), lse = filled({1, 6}, at::kFloat, 9);
  const AttentionInput<float> in{
      const_rows_of<float>(q), const_rows_of<float>(q), const_rows_of<float>(q), 1, 1, 4, 0.5f};
  attention_tiles<float>(rows_of<float>(o), lse.mutable_data_ptr<float>(), in, {{1, 3, 1, 3, true}}, false);
  EXPECT_EQ(values(o)[0], 9);
  EXPECT_EQ(values(o)[16], 9);
  EXPECT_EQ(values(lse)[0], 9);
  EXPECT_NE(values(o)[4], 9);
}

}  // namespace
}  // namespace switchyard::kernels
