#include "planner/lanes.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "schedule/interleaved.hpp"
#include "schedule/replay.hpp"
#include "schedule/zero_bubble.hpp"

namespace switchyard::planner {
namespace {

using schedule::Kind;

std::vector<std::vector<StageTime>> uniform(int stages, int mbs, StageTime time) {
  return std::vector(static_cast<size_t>(stages), std::vector(static_cast<size_t>(mbs), time));
}

schedule::Schedule made(Kind kind, int stages, int mbs) { return {.order = schedule::schedule(kind, stages, mbs), .mbs = mbs}; }

TEST(Lanes, of_equal_micro_batches_take_what_the_schedule_replayed_takes) {
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b})
    for (int stages = 1; stages <= 5; ++stages)
      for (int mbs = 1; mbs <= 9; ++mbs) {
        const double replayed = schedule::replay(made(kind, stages, mbs), {.at = {{Seconds{3}, Seconds{4}, Seconds{1}}}}).makespan.count;
        EXPECT_DOUBLE_EQ(pipeline_seconds(made(kind, stages, mbs), uniform(stages, mbs, {3, 5, 0, 0})), replayed) << stages << " stages, " << mbs;
        EXPECT_DOUBLE_EQ(replayed, 8.0 * (mbs + stages - 1)) << "the known time of a pipeline";
      }
}

// Chunks and split gradients; without sends both replays are the same.
TEST(Lanes, of_chunks_and_split_gradients_take_what_the_schedule_replayed_takes) {
  const schedule::Costs costs{.at = {{Seconds{3}, Seconds{4}, Seconds{1}}}};
  for (int stages = 2; stages <= 4; ++stages)
    for (int mbs = 1; mbs <= 9; ++mbs) {
      for (int chunks = 2; chunks <= 3; ++chunks) {
        const schedule::Schedule looped = schedule::interleaved(stages, mbs, chunks);
        EXPECT_DOUBLE_EQ(pipeline_seconds(looped, uniform(stages * chunks, mbs, {3, 5, 0, 0})), schedule::replay(looped, costs).makespan.count);
      }
      const schedule::Schedule split = schedule::zero_bubble(stages, mbs, stages, costs), turned = schedule::zero_bubble_v(stages, mbs, 2 * stages, costs);
      EXPECT_DOUBLE_EQ(pipeline_seconds(split, uniform(stages, mbs, {3, 4, 1, 0})), schedule::replay(split, costs).makespan.count);
      EXPECT_DOUBLE_EQ(pipeline_seconds(turned, uniform(2 * stages, mbs, {3, 4, 1, 0})), schedule::replay(turned, costs).makespan.count);
    }
}

TEST(Lanes, a_slow_stage_sets_the_pace) {
  auto at = uniform(2, 6, {1, 2, 0, 0});
  at[1] = std::vector<StageTime>(6, {4, 7, 0, 0});
  EXPECT_DOUBLE_EQ(pipeline_seconds(made(Kind::one_f_one_b, 2, 6), at), 1 + 6 * 11 + 2);
}

TEST(Lanes, a_micro_batch_waits_for_what_is_sent) {
  std::vector<std::vector<StageTime>> at = {{{1, 2, 0, 10}}, {{3, 5, 0, 100}}};
  EXPECT_DOUBLE_EQ(pipeline_seconds(made(Kind::one_f_one_b, 2, 1), at), 1 + 10 + 3 + 5 + 10 + 2) << "the last stage sends to nobody";
}

// Activations come at 6, 11, 16, so the forwards end at 17; gradients leave at 18 and come at 23, 28, 33.
TEST(Lanes, sends_of_a_direction_go_one_after_the_other) {
  EXPECT_DOUBLE_EQ(pipeline_seconds(made(Kind::gpipe, 2, 3), uniform(2, 3, {1, 1, 0, 5})), 34);
}

TEST(Lanes, stages_that_wait_for_each_other_are_an_error) {
  const schedule::Schedule order{.order = {{{'X', 0, 0}, {'F', 0, 0}}, {{'F', 0, 0}, {'X', 0, 0}}}, .mbs = 1};
  EXPECT_THROW(pipeline_seconds(order, uniform(2, 1, {1, 1, 0, 0})), InternalError);
  EXPECT_THROW(pipeline_seconds(order, uniform(3, 1, {1, 1, 0, 0})), InternalError);
}

}  // namespace
}  // namespace switchyard::planner
