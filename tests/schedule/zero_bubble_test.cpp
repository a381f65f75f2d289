#include "schedule/zero_bubble.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

using testing::Each;
using testing::Le;

Costs equal(double f, double b, double w, double send = 0) {
  return {.at = {{Seconds{f}, Seconds{b}, Seconds{w}}}, .send = Seconds{send}};
}

double idle(const Schedule& made, const Costs& costs) { return replay(made, costs).worst_idle().count; }

TEST(ZeroBubble, four_stages_with_the_memory_of_1f1b_run_the_published_order) {
  const Schedule made = zero_bubble(4, 8, 4, equal(1, 1, 1));
  EXPECT_EQ(to_string(made.order[0]), "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7");
  EXPECT_EQ(to_string(made.order[3]), "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7");
}

TEST(ZeroBubble, idle_time_is_2p_minus_1_minus_cap) {
  const Costs units = equal(1, 1, 1);
  EXPECT_EQ(idle(zero_bubble(8, 32, 8, units), units), 7);
  EXPECT_EQ(idle(zero_bubble(8, 32, 12, units), units), 3);
  EXPECT_EQ(idle(zero_bubble(8, 32, 16, units), units), 0);
  for (int stages = 1; stages <= 8; ++stages) {
    for (int cap = stages; cap <= 2 * stages + 1; ++cap) {
      for (int mbs = 2 * stages - 1; mbs <= 20; ++mbs) {
        const Schedule made = zero_bubble(stages, mbs, cap, units);
        EXPECT_EQ(idle(made, units), std::max(0, 2 * stages - 1 - cap)) << stages << " stages, cap " << cap << ", " << mbs << " micro-batches";
      }
    }
  }
}

TEST(ZeroBubble, with_measured_times_it_idles_no_longer_than_published) {
  const Costs times = equal(1000, 1050, 900);
  EXPECT_EQ(idle(zero_bubble(8, 32, 8, times), times), 8050);
  EXPECT_LE(idle(zero_bubble(8, 32, 16, times), times), 1450);
}

TEST(ZeroBubble, any_order_verifies_within_its_cap) {
  for (const Costs& costs : {equal(1, 1, 1), equal(1000, 1050, 900, 70), equal(3, 1, 0), equal(0, 0, 0)}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int mbs = 0; mbs <= 20; ++mbs) {
        for (const int cap : {1, 2, stages, stages + 3, 2 * stages}) {
          const Schedule made = zero_bubble(stages, mbs, cap, costs);
          EXPECT_NO_THROW(verify(made)) << stages << " stages, " << mbs << " micro-batches, cap " << cap;
          EXPECT_THAT(peak_in_flight(made.order), Each(Le(cap)));
        }
      }
    }
  }
}

TEST(ZeroBubble, unequal_stages_are_scheduled_by_their_own_times) {
  Costs costs;
  for (const double load : {1.0, 1.0, 1.0, 2.0}) costs.at.push_back({Seconds{load}, Seconds{load}, Seconds{load}});
  const Timing timing = replay(zero_bubble(4, 16, 8, costs), costs);
  EXPECT_EQ(timing.idle[3], Seconds{0});  // the stage that all wait for
  EXPECT_EQ(timing.makespan, Seconds{3 + 16 * 6});
}

TEST(ZeroBubbleV, up_to_four_stages_dont_idle_and_more_idle_one_forward) {
  const Costs units = equal(1, 1, 1);
  for (int stages = 1; stages <= 8; ++stages) {
    for (const int mbs : {2 * stages, 3 * stages, 32}) {
      const Schedule made = zero_bubble_v(stages, mbs, 2 * stages, units);
      EXPECT_LE(idle(made, units), stages <= 4 ? 0 : 1) << stages << " stages, " << mbs << " micro-batches";
    }
  }
  EXPECT_EQ(idle(zero_bubble_v(8, 32, 17, units), units), 0);  // with one more half activation
}

TEST(ZeroBubbleV, with_measured_times_it_idles_less_than_zero_bubble_in_the_same_memory) {
  const Costs halves = equal(500, 525, 450);
  EXPECT_LE(idle(zero_bubble_v(8, 32, 16, halves), halves), 1975);
}

TEST(ZeroBubbleV, any_order_verifies_within_its_cap) {
  for (const Costs& costs : {equal(1, 1, 1), equal(1000, 1050, 900, 70), equal(3, 1, 0), equal(0, 0, 0)}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int mbs = 0; mbs <= 20; ++mbs) {
        for (const int cap : {2, stages + 1, 2 * stages}) {
          const Schedule made = zero_bubble_v(stages, mbs, cap, costs);
          EXPECT_NO_THROW(verify(made)) << stages << " stages, " << mbs << " micro-batches, cap " << cap;
          EXPECT_EQ(made.placement, Placement::v);
          EXPECT_THAT(peak_in_flight(made.order), Each(Le(cap)));
        }
      }
    }
  }
}

TEST(ZeroBubble, senseless_numbers_are_refused) {
  EXPECT_THROW(zero_bubble(0, 1, 1, equal(1, 1, 1)), InternalError);
  EXPECT_THROW(zero_bubble(2, -1, 2, equal(1, 1, 1)), InternalError);
  EXPECT_THROW(zero_bubble(2, 1, 0, equal(1, 1, 1)), InternalError);
  EXPECT_THROW(zero_bubble(2, 1, 2, equal(1, -1, 1)), InternalError);
  EXPECT_THROW(zero_bubble_v(2, 1, 1, equal(1, 1, 1)), InternalError);
}

}  // namespace
}  // namespace switchyard::schedule
