#include "planner/replicas.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "schedule/interleaved.hpp"
#include "schedule/replay.hpp"
#include "schedule/zero_bubble.hpp"

namespace switchyard::planner {
namespace {

using schedule::gpipe;
using schedule::one_f_one_b;

std::vector<std::vector<StageTime>> uniform(int stages, int mbs, StageTime time) {
  return std::vector(static_cast<size_t>(stages), std::vector(static_cast<size_t>(mbs), time));
}

TEST(Replicas, of_equal_micro_batches_take_what_the_schedule_replayed_takes) {
  for (const auto schedule_of : {gpipe, one_f_one_b})
    for (int stages = 1; stages <= 5; ++stages)
      for (int mbs = 1; mbs <= 9; ++mbs) {
        const double replayed =
            schedule::replay(schedule_of(stages, mbs), {.at = {{Seconds{3}, Seconds{4}, Seconds{1}}}}).makespan.count;
        EXPECT_DOUBLE_EQ(pipeline_seconds(schedule_of(stages, mbs), uniform(stages, mbs, {3, 5, 0, 0})), replayed)
            << stages << " stages, " << mbs;
        EXPECT_DOUBLE_EQ(replayed, 8.0 * (mbs + stages - 1)) << "the known time of a pipeline";
      }
}

// Chunks and split gradients; without sends both replays are the same.
TEST(Replicas, of_chunks_and_split_gradients_take_what_the_schedule_replayed_takes) {
  const schedule::Costs costs{.at = {{Seconds{3}, Seconds{4}, Seconds{1}}}};
  for (int stages = 2; stages <= 4; ++stages)
    for (int mbs = 1; mbs <= 9; ++mbs) {
      for (int chunks = 2; chunks <= 3; ++chunks) {
        const schedule::Schedule looped = schedule::interleaved(stages, mbs, chunks);
        EXPECT_DOUBLE_EQ(pipeline_seconds(looped, uniform(stages * chunks, mbs, {3, 5, 0, 0})),
                         schedule::replay(looped, costs).makespan.count);
      }
      const schedule::Schedule split = schedule::zero_bubble(stages, mbs, stages, {costs}),
                               turned = schedule::zero_bubble_v(stages, mbs, 2 * stages, {costs});
      EXPECT_DOUBLE_EQ(pipeline_seconds(split, uniform(stages, mbs, {3, 4, 1, 0})),
                       schedule::replay(split, costs).makespan.count);
      EXPECT_DOUBLE_EQ(pipeline_seconds(turned, uniform(2 * stages, mbs, {3, 4, 1, 0})),
                       schedule::replay(turned, costs).makespan.count);
    }
}

TEST(Replicas, a_slow_stage_sets_the_pace) {
  auto at = uniform(2, 6, {1, 2, 0, 0});
  at[1] = std::vector<StageTime>(6, {4, 7, 0, 0});
  EXPECT_DOUBLE_EQ(pipeline_seconds(one_f_one_b(2, 6), at), 1 + 6 * 11 + 2);
}

TEST(Replicas, a_micro_batch_waits_for_what_is_sent) {
  std::vector<std::vector<StageTime>> at = {{{1, 2, 0, 10}}, {{3, 5, 0, 100}}};
  EXPECT_DOUBLE_EQ(pipeline_seconds(one_f_one_b(2, 1), at), 1 + 10 + 3 + 5 + 10 + 2)
      << "the last stage sends to nobody";
}

// Activations come at 6, 11, 16, so the forwards end at 17; gradients leave at 18 and come at 23, 28, 33.
TEST(Replicas, sends_of_a_direction_go_one_after_the_other) {
  EXPECT_DOUBLE_EQ(pipeline_seconds(gpipe(2, 3), uniform(2, 3, {1, 1, 0, 5})), 34);
}

// Each stage has a host of its own, or all share a host that none of them slows.
TEST(Replicas, side_by_side_take_as_long_as_alone_where_nothing_is_shared) {
  for (const auto schedule_of : {gpipe, one_f_one_b})
    for (int stages = 1; stages <= 4; ++stages)
      for (int mbs = 1; mbs <= 5; ++mbs) {
        auto at = uniform(stages, mbs, {3, 5, 0, 0.5, 1, 2});
        at.front()[0].forward = 7;
        const double alone = pipeline_seconds(schedule_of(stages, mbs), at);
        SharedPipeline pipeline{schedule_of(stages, mbs), at, {}};
        for (int stage = 0; stage < stages; ++stage) pipeline.hosts.push_back({{stage, 1}});
        EXPECT_NEAR(shared_seconds(std::vector{pipeline}, stages, 1).seconds, alone, 1e-9);
        pipeline.hosts.assign(static_cast<size_t>(stages), {{0, 1.0 / stages}});
        const SharedSeconds shared = shared_seconds(std::vector{pipeline}, 1, 1);
        EXPECT_NEAR(shared.seconds, alone, 1e-9);
        EXPECT_NEAR(shared.compute, (stages * mbs * 5 + 4), 1e-9);
      }
}

// Two devices of a host, each twice as fast when alone: after the short one's end the other has the host to itself.
TEST(Replicas, side_by_side_have_what_others_leave_of_their_host) {
  const auto of = [](StageTime time, int host) {
    return SharedPipeline{one_f_one_b(1, 1), {{time}}, {{{host, 2.0 / 2}}}};
  };
  const StageTime short_one{1, 3, 0, 0}, long_one{4, 6, 0, 0};
  EXPECT_DOUBLE_EQ(shared_seconds(std::vector{of(short_one, 0), of(long_one, 0)}, 1, 2).seconds, 4 + (10.0 - 4) / 2);
  EXPECT_DOUBLE_EQ(shared_seconds(std::vector{of(short_one, 0), of(long_one, 1)}, 2, 2).seconds, 5)
      << "hosts of their own";
  // Communication is not faster, and leaves the host to the other one: 2 s of computing, then 2 s of communication.
  EXPECT_DOUBLE_EQ(shared_seconds(std::vector{of({1, 3, 0, 0, 0, 2}, 0), of(long_one, 0)}, 1, 2).seconds,
                   2 + (10.0 - 2) / 2);
  EXPECT_DOUBLE_EQ(shared_seconds(std::vector{of({1, 3, 0, 0, 0, 2}, 0)}, 1, 2).seconds, 1 + 2);
}

// A pipeline of four stages on four devices that share two cores keeps both cores busy except at its ends.
TEST(Replicas, stages_that_wait_leave_their_host_to_the_others) {
  const int stages = 4, mbs = 16;
  SharedPipeline pipeline{one_f_one_b(stages, mbs), uniform(stages, mbs, {1, 2, 0, 0}),
                          std::vector<std::vector<simulator::Claim>>(4, {{0, 2.0 / 4}})};
  const double seconds = shared_seconds(std::vector{pipeline}, 1, 2).seconds;
  EXPECT_GE(seconds, 3.0 * mbs) << "all that is computed";
  EXPECT_LT(seconds, 3.0 * mbs + 3) << "with idle stages it would be 57 s";
}

TEST(Replicas, side_by_side_that_wait_in_a_cycle_are_an_error) {
  const schedule::Schedule order{.order = {{{Pass::BW, 0, 0}, {Pass::F, 0, 0}}, {{Pass::F, 0, 0}, {Pass::BW, 0, 0}}},
                                 .mbs = 1};
  EXPECT_THROW(shared_seconds(std::vector{SharedPipeline{order, uniform(2, 1, {1, 1, 0, 0}), {{}, {}}}}, 1, 2),
               InternalError);
  EXPECT_THROW(shared_seconds(std::vector{SharedPipeline{order, uniform(3, 1, {1, 1, 0, 0}), {{}, {}}}}, 1, 2),
               InternalError);
}

TEST(Replicas, stages_that_wait_for_each_other_are_an_error) {
  const schedule::Schedule order{.order = {{{Pass::BW, 0, 0}, {Pass::F, 0, 0}}, {{Pass::F, 0, 0}, {Pass::BW, 0, 0}}},
                                 .mbs = 1};
  EXPECT_THROW(pipeline_seconds(order, uniform(2, 1, {1, 1, 0, 0})), InternalError);
  EXPECT_THROW(pipeline_seconds(order, uniform(3, 1, {1, 1, 0, 0})), InternalError);
}

}  // namespace
}  // namespace switchyard::planner
