#include "planner/lanes.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "schedule/replay.hpp"

namespace switchyard::planner {
namespace {

using schedule::Kind;

std::vector<std::vector<StageTime>> uniform(int stages, int mbs, StageTime time) {
  return std::vector(static_cast<size_t>(stages), std::vector(static_cast<size_t>(mbs), time));
}

TEST(Lanes, of_equal_micro_batches_take_what_the_schedule_replayed_takes) {
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b})
    for (int stages = 1; stages <= 5; ++stages)
      for (int mbs = 1; mbs <= 9; ++mbs) {
        const schedule::Schedule made{.order = schedule::schedule(kind, stages, mbs), .mbs = mbs};
        const double replayed = schedule::replay(made, {.at = {{Seconds{3}, Seconds{4}, Seconds{1}}}}).makespan.count;
        EXPECT_DOUBLE_EQ(pipeline_seconds(made.order, uniform(stages, mbs, {3, 5, 0})), replayed) << stages << " stages, " << mbs;
        EXPECT_DOUBLE_EQ(replayed, 8.0 * (mbs + stages - 1)) << "the known time of a pipeline";
      }
}

TEST(Lanes, a_slow_stage_sets_the_pace) {
  auto at = uniform(2, 6, {1, 2, 0});
  at[1] = std::vector<StageTime>(6, {4, 7, 0});
  EXPECT_DOUBLE_EQ(pipeline_seconds(schedule::schedule(Kind::one_f_one_b, 2, 6), at), 1 + 6 * 11 + 2);
}

TEST(Lanes, a_micro_batch_waits_for_what_is_sent) {
  std::vector<std::vector<StageTime>> at = {{{1, 2, 10}}, {{3, 5, 100}}};
  EXPECT_DOUBLE_EQ(pipeline_seconds(schedule::schedule(Kind::one_f_one_b, 2, 1), at), 1 + 10 + 3 + 5 + 10 + 2) << "the last stage sends to nobody";
}

// Activations come at 6, 11, 16, so the forwards end at 17; gradients leave at 18 and come at 23, 28, 33.
TEST(Lanes, sends_of_a_direction_go_one_after_the_other) {
  EXPECT_DOUBLE_EQ(pipeline_seconds(schedule::schedule(Kind::gpipe, 2, 3), uniform(2, 3, {1, 1, 5})), 34);
}

TEST(Lanes, stages_that_wait_for_each_other_are_an_error) {
  const schedule::Order order = {{{'X', 0, 0}, {'F', 0, 0}}, {{'F', 0, 0}, {'X', 0, 0}}};
  EXPECT_THROW(pipeline_seconds(order, uniform(2, 1, {1, 1, 0})), InternalError);
  EXPECT_THROW(pipeline_seconds(order, uniform(3, 1, {1, 1, 0})), InternalError);
}

}  // namespace
}  // namespace switchyard::planner
