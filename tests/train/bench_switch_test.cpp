#include "train/bench_switch.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "bench_model.hpp"
#include "job_device.hpp"

namespace switchyard::train {
namespace {

BenchSwitchSettings small() {
  BenchSwitchSettings settings;
  settings.model = bench_model();
  settings.repetitions = 3;
  settings.device = job_device();
  return settings;
}

// Every rank holds a copy of the norms of the 2 layers and the last norm all along.
i64 matrix_bytes() { return 4 * (config::parameter_count(bench_model()) - 5 * bench_model().hidden_size); }

TEST(BenchSwitch, from_two_halves_to_two_copies_each_rank_keeps_one_half_and_gets_the_other) {
  const BenchSwitchResult result = bench_switch(small());
  EXPECT_EQ(result.moved_bytes, matrix_bytes());
  EXPECT_EQ(result.copied_bytes, matrix_bytes());
  EXPECT_GT(result.copy_seconds, 0);
}

TEST(BenchSwitch, from_two_copies_to_two_halves_nothing_moves) {
  BenchSwitchSettings settings = small();
  std::swap(settings.from, settings.to);
  settings.precision = "bf16";
  const BenchSwitchResult result = bench_switch(settings);
  EXPECT_EQ(result.moved_bytes, 0);
  EXPECT_GT(result.copied_bytes, 0);
  EXPECT_LE(result.copied_bytes, matrix_bytes() / 2);  // what home has already in place is not copied
}

TEST(BenchSwitch, the_share_compares_equal_bytes) {
  const BenchSwitchResult result{3000, 1000, 2e-6, 1e-6};
  EXPECT_DOUBLE_EQ(result.share(), 0.5);
  EXPECT_DOUBLE_EQ(result.bytes_per_second(), 2e9);
}

TEST(BenchSwitch, refuses_a_switch_that_moves_and_copies_nothing) {
  BenchSwitchSettings settings = small();
  settings.to = settings.from;
  EXPECT_EQ(message_of<UserError>([&] { bench_switch(settings); }),
            "bench switch: this switch moves and copies nothing. Give two strategies that differ.");
  settings.repetitions = 0;
  EXPECT_EQ(message_of<UserError>([&] { bench_switch(settings); }),
            "bench switch: --ranks and --repetitions must be 1 or more.");
}

}  // namespace
}  // namespace switchyard::train
