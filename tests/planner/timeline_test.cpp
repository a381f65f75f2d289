#include "planner/timeline.hpp"

#include <gtest/gtest.h>

#include <random>

namespace switchyard::planner {
namespace {

void expect(const Timeline& timeline, double before, double computed, double moved, double reduced) {
  EXPECT_DOUBLE_EQ(timeline.before, before);
  EXPECT_DOUBLE_EQ(timeline.computed, computed);
  EXPECT_DOUBLE_EQ(timeline.moved, moved);
  EXPECT_DOUBLE_EQ(timeline.reduced, reduced);
}

TEST(Timeline, the_first_phase_waits_for_its_first_unit_and_its_gradients_leave_after_it) {
  Timeline timeline;
  timeline.add({3, 1, 10, 2});
  expect(timeline, 0, 11, 3, 13);
}

TEST(Timeline, transfers_shorter_than_computing_cost_nothing_but_the_last_reduce) {
  Timeline timeline;
  timeline.add({0, 0, 10, 2});
  timeline.add({4, 1, 10, 3});
  expect(timeline, 10, 20, 4, 23);
}

// The third phase's parameters are not received before the first phase has ended, at 10.
TEST(Timeline, parameters_come_no_sooner_than_during_the_phase_before) {
  Timeline timeline;
  timeline.add({0, 0, 10, 0});
  timeline.add({0, 0, 5, 0});
  timeline.add({30, 12, 1, 0});
  expect(timeline, 15, 40, 40, 40);
}

TEST(Timeline, parameters_that_come_late_hold_the_phase_up_until_the_first_unit) {
  Timeline timeline;
  timeline.add({0, 0, 10, 0});
  timeline.add({40, 15, 30, 0});
  expect(timeline, 10, 45, 40, 45);
}

TEST(Timeline, gradients_leave_one_phase_after_the_other) {
  Timeline timeline;
  timeline.add({0, 0, 10, 20});
  timeline.add({0, 0, 5, 7});
  expect(timeline, 10, 15, 0, 37);
}

TEST(Timeline, gradients_leave_during_the_last_backward_pass_but_for_the_last_unit) {
  for (const auto& [reduce, reduced] : {std::pair(6.0, 12.0), std::pair(4.5, 11.5), std::pair(9.0, 15.0)}) {
    Timeline timeline;
    timeline.add({.work = 11, .reduce = reduce, .last_unit = 0.5, .last_backward = 5});
    expect(timeline, 0, 11, 0, reduced);
  }
}

// Half of what is moved beside it: of the first phase 3 - 1 after its first unit and 4 of gradients, which take longer
// for it, too; of the second one 2 of gradients.
TEST(Timeline, transfers_and_computing_slow_each_other) {
  Timeline timeline;
  timeline.add(
      {.moves = 3, .first_unit = 1, .work = 10, .reduce = 6, .last_unit = 1, .last_backward = 4, .share = 0.5});
  expect(timeline, 0, 1 + 10 + 1 + 2, 3 + 1.5, 8 + 6 + 2);
  timeline.add({.work = 10, .share = 0.5});
  expect(timeline, 14, 14 + 10 + 1, 4.5, 25);
}

// The first gradients leave beside the second phase, which they slow down for as long as they take; the last ones of a
// plan, and parameters that are waited for, are beside nothing.
TEST(Timeline, ends_no_earlier_than_what_each_phase_adds_at_least) {
  Timeline hidden;
  for (const double reduce : {3.0, 0.0}) hidden.add({.work = 10, .reduce = reduce, .share = 0.5});
  EXPECT_EQ(hidden.least_end(0.5), 10 + 10 + 0.5 * 3);

  std::mt19937 random(1);
  const auto draw = [&] { return static_cast<double>(random() % 20); };
  const auto share = [&] { return static_cast<double>(random() % 5) / 4; };
  for (int trial = 0; trial < 20000; ++trial) {
    const double of_all = share();
    Timeline timeline;
    double least = 0;
    for (int number = 0; number < 4; ++number) {
      PhaseTimes phase{draw(), 0, draw(), draw(), 0, draw(), of_all};
      phase.first_unit = share() * phase.moves;
      phase.last_unit = share() * phase.reduce;
      least += phase.work + least_of_transfer(of_all, phase.moves + phase.reduce);
      const double before = number == 0 ? 0 : timeline.least_end(of_all);
      timeline.add(phase);
      ASSERT_GE(timeline.least_end(of_all) + 1e-9,
                before + phase.work + least_of_transfer(of_all, phase.moves + phase.reduce))
          << "trial " << trial;
    }
    ASSERT_GE(timeline.reduced + 1e-9, timeline.least_end(of_all)) << "trial " << trial;
    ASSERT_GE(timeline.least_end(of_all) + 1e-9, least) << "trial " << trial;
  }
}

TEST(Timeline, is_no_later_only_if_nothing_is) {
  const Timeline one{1, 2, 3, 4};
  EXPECT_TRUE(one.no_later(one));
  for (const Timeline& other : {Timeline{2, 9, 2, 9}, Timeline{9, 1, 9, 9}, Timeline{9, 9, 9, 3}})
    EXPECT_FALSE(one.no_later(other));
  EXPECT_TRUE(one.no_later({0, 9, 3, 9})) << "what comes next waits for the later of both";
}

TEST(Timeline, stays_no_later_whatever_follows) {
  std::mt19937 random(1);
  const auto draw = [&] { return static_cast<double>(random() % 20); };
  const auto share = [&] { return static_cast<double>(random() % 5) / 4; };
  const auto later = [&] { return random() % 2 == 0 ? draw() : 0; };
  for (int trial = 0; trial < 20000; ++trial) {
    Timeline early{draw(), draw(), draw(), draw()}, late = early;
    for (double* at : {&late.before, &late.computed, &late.moved, &late.reduced}) *at += later();
    PhaseTimes phase{draw(), 0, draw(), draw(), 0, draw(), share()};
    phase.first_unit = share() * phase.moves;
    phase.last_unit = share() * phase.reduce;
    PhaseTimes longer = phase;
    for (const auto& [all, part] :
         {std::pair(&longer.moves, &longer.first_unit), {&longer.reduce, &longer.last_unit}}) {
      *all += later();
      *part += share() * (*all - *part);
    }
    longer.work += later();
    early.add(phase);
    late.add(longer);
    ASSERT_TRUE(early.no_later(late)) << "trial " << trial;
  }
}

}  // namespace
}  // namespace switchyard::planner
