#include "schedule/list_scheduler.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

constexpr Seconds kAny{std::numeric_limits<double>::infinity()};

Pipeline pipeline(int stages, int mbs, ItemTimes times, double send = 0) {
  return {stages, mbs, 1, Placement::loop, {.at = {times}, .send = Seconds{send}}};
}

std::vector<Rule> all(int stages, Rule rule) { return std::vector<Rule>(static_cast<size_t>(stages), rule); }

TEST(ListSchedule, gives_the_length_that_a_replay_has) {
  for (const double send : {0.0, 0.3})
    for (const double hold : {0.0, 0.25, 0.5, 1.0})
      for (const int waiting : {0, 1, 100}) {
        const Pipeline p = pipeline(4, 9, {Seconds{1}, Seconds{1.3}, Seconds{0.7}}, send);
        const auto made = list_schedule(p, all(4, {"FB", "BF", hold, waiting, 5}), kAny);
        ASSERT_TRUE(made);
        const Timing timing = replay(made->schedule, p.costs);
        EXPECT_GE(made->length.makespan.count, timing.makespan.count - 1e-9);
        EXPECT_NEAR(length_of(p, made->schedule).makespan.count, timing.makespan.count, 1e-9);
        EXPECT_NEAR(length_of(p, made->schedule).longest_stage.count, timing.longest_stage().count, 1e-9);
        if (hold > 0) continue;
        EXPECT_NEAR(made->length.makespan.count, timing.makespan.count, 1e-9);
        EXPECT_NEAR(made->length.longest_stage.count, timing.longest_stage().count, 1e-9);
      }
}

TEST(ListSchedule, runs_weights_at_once_where_none_may_wait) {
  const auto made =
      list_schedule(pipeline(1, 3, {Seconds{1}, Seconds{1}, Seconds{1}}), all(1, {"FB", "BF", 0, 0}), kAny);
  EXPECT_EQ(to_string(made->schedule.order[0]), "F0 B0 W0 F1 B1 W1 F2 B2 W2");
}

TEST(ListSchedule, gives_up_what_takes_too_long) {
  const Pipeline p = pipeline(3, 6, {Seconds{1}, Seconds{1}, Seconds{1}});
  const Seconds takes = list_schedule(p, all(3, {"FB", "BF", 0, 100, 3}), kAny)->length.makespan;
  EXPECT_TRUE(list_schedule(p, all(3, {"FB", "BF", 0, 100, 3}), takes));
  EXPECT_FALSE(list_schedule(p, all(3, {"FB", "BF", 0, 100, 3}), Seconds{takes.count - 0.5}));
}

TEST(ListSchedule, least_length_is_that_of_the_best_schedules_and_falls_with_the_cap) {
  const Pipeline p = pipeline(4, 12, {Seconds{1}, Seconds{1}, Seconds{1}});
  EXPECT_EQ(least_length(p, 4), (Length{Seconds{3 + 36}, Seconds{36 + 3}}));
  EXPECT_EQ(least_length(p, 7), (Length{Seconds{3 + 36}, Seconds{36}}));
  EXPECT_EQ(least_length(p, 1).makespan, Seconds{36 + 6});
}

TEST(ListSchedule, refuses_rules_that_cant_work) {
  const Pipeline p = pipeline(2, 2, {Seconds{1}, Seconds{1}, Seconds{1}});
  EXPECT_THROW(list_schedule(p, all(2, {"FB", "BF", 0, 100, 0}), kAny), InternalError);
  EXPECT_THROW(list_schedule(p, all(2, {"F", "F"}), kAny), InternalError);
}

}  // namespace
}  // namespace switchyard::schedule
