#include "train/bench_step.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"

namespace switchyard::train {
namespace {

BenchStepSettings tiny() {
  BenchStepSettings s;
  s.model.hidden_size = 32;
  s.model.layers = 2;
  s.model.heads = 4;
  s.model.kv_heads = 2;
  s.model.head_dim = 8;
  s.model.ffn_size = 48;
  s.model.vocab_size = 64;
  s.seq = 32;
  s.steps = 3;
  return s;
}

TEST(BenchStep, trains_and_measures_every_step) {
  const BenchStepResult one = bench_step(tiny());
  ASSERT_EQ(one.losses.size(), 3u);
  EXPECT_LT(one.losses[2], one.losses[0]);
  EXPECT_GT(one.tokens_per_second, 0);
  EXPECT_GT(one.peak_bytes, 16 * one.parameters);  // master weights, two moments and gradients in fp32
}

TEST(BenchStep, gives_the_same_losses_under_data_parallelism) {
  BenchStepSettings two = tiny();
  two.ranks = 2;
  two.strategy = "2,1,1";
  two.precision = "fp64";
  BenchStepSettings one = tiny();
  one.precision = "fp64";
  const auto a = bench_step(one).losses, b = bench_step(two).losses;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12 * a[i]);
}

TEST(BenchStep, refuses_no_steps) {
  BenchStepSettings s = tiny();
  s.steps = 0;
  EXPECT_THROW(bench_step(s), UserError);
}

}  // namespace
}  // namespace switchyard::train
