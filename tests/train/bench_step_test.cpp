#include "train/bench_step.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "bench_model.hpp"

namespace switchyard::train {
namespace {

BenchStepSettings tiny() {
  BenchStepSettings s;
  s.model = bench_model();
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
  EXPECT_EQ(message_of<UserError>([&] { bench_step(s); }), "bench step: --steps, --seq and --batch must be 1 or more.");
}

}  // namespace
}  // namespace switchyard::train
