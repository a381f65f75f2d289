#include "train/bench_step.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "bench_model.hpp"
#include "job_device.hpp"

namespace switchyard::train {
namespace {

BenchStepSettings tiny() {
  BenchStepSettings s;
  s.model = bench_model();
  s.seq = 32;
  s.steps = 3;
  s.device = job_device();
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

TEST(BenchStep, documents_of_any_lengths_are_packed_into_micro_batches) {
  BenchStepSettings one = tiny();
  one.precision = "fp64";
  one.lengths = {40, 9, 9, 30, 1, 2};
  BenchStepSettings packed = one;
  packed.micro_batch = 91;  // all of them
  const BenchStepResult a = bench_step(one), b = bench_step(packed);
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-12 * a.losses[i]);
  EXPECT_GT(b.peak_bytes, a.peak_bytes) << "one micro-batch instead of three";
  EXPECT_NEAR(a.tokens_per_second * a.step_seconds, 91, 1e-6);
  EXPECT_GT(a.matmul_share, 0);
}

TEST(BenchStep, reads_lengths) {
  EXPECT_EQ(lengths_of("4096"), std::vector<i64>{4096});
  EXPECT_EQ(lengths_of("40,9x2,1x1"), (std::vector<i64>{40, 9, 9, 1}));
  for (const char* wrong : {"", "x", "4,", ",4", "0", "4x0", "4x-1", "4y2", "4x2x2", "99999999999999999999", "16777217",
                            "1x1048577", "1x1048576,1", " 4", "4.0"})
    EXPECT_EQ(message_of<UserError>([&] { lengths_of(wrong); }),
              std::string("bench step: --lengths ") + wrong +
                  " can't be read. Give lengths of documents in tokens, with their number if there are several, such "
                  "as 4096,512x8; up to 1048576 documents of up to 16777216 tokens.");
}

TEST(BenchStep, refuses_more_tokens_than_make_sense) {
  const std::string message = "bench step: more than 268435456 tokens a step. Give fewer or shorter documents.";
  BenchStepSettings s = tiny();
  s.seq = 1 << 24;
  s.batch = 1 << 20;
  EXPECT_EQ(message_of<UserError>([&] { bench_step(s); }), message);
  s.lengths = std::vector<i64>(17, 1 << 24);
  EXPECT_EQ(message_of<UserError>([&] { bench_step(s); }), message);
}

TEST(BenchStep, refuses_a_micro_batch_that_does_not_hold_its_documents) {
  BenchStepSettings s = tiny();
  s.micro_batch = 31;
  EXPECT_EQ(message_of<UserError>([&] { bench_step(s); }),
            "bench step: --micro-batch 31 is shorter than a document of 32 tokens.");
}

TEST(BenchStep, refuses_no_steps) {
  BenchStepSettings s = tiny();
  s.steps = 0;
  EXPECT_EQ(message_of<UserError>([&] { bench_step(s); }), "bench step: --steps, --seq and --batch must be 1 or more.");
}

}  // namespace
}  // namespace switchyard::train
