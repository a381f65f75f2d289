#include "schedule/zero_bubble.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <tuple>
#include <utility>

#include "../cases.hpp"
#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

using testing::Each;
using testing::Le;

constexpr unsigned kPipelines = cases(60u, 6u);
constexpr int kMicroBatchStep = cases(1, 5);

Costs equal(double f, double b, double w, double send = 0) {
  return {.at = {{Seconds{f}, Seconds{b}, Seconds{w}}}, .send = Seconds{send}};
}

double idle(const Schedule& made, const Costs& costs) { return replay(made, costs).worst_idle().count; }

TEST(ZeroBubble, four_stages_with_the_memory_of_1f1b_run_the_published_order) {
  const Schedule made = zero_bubble(4, 8, 4, {equal(1, 1, 1)});
  EXPECT_EQ(to_string(made.order[0]), "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7");
  EXPECT_EQ(to_string(made.order[3]), "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7");
}

TEST(ZeroBubble, idle_time_is_2p_minus_1_minus_cap) {
  const Costs units = equal(1, 1, 1);
  EXPECT_EQ(idle(zero_bubble(8, 32, 8, {units}), units), 7);
  EXPECT_EQ(idle(zero_bubble(8, 32, 12, {units}), units), 3);
  EXPECT_EQ(idle(zero_bubble(8, 32, 16, {units}), units), 0);
  for (int stages = 1; stages <= 8; ++stages) {
    for (int cap = stages; cap <= 2 * stages + 1; ++cap) {
      for (int mbs = 2 * stages - 1; mbs <= 20; ++mbs) {
        const Schedule made = zero_bubble(stages, mbs, cap, {units});
        EXPECT_EQ(idle(made, units), std::max(0, 2 * stages - 1 - cap))
            << stages << " stages, cap " << cap << ", " << mbs << " micro-batches";
      }
    }
  }
}

TEST(ZeroBubble, with_measured_times_it_idles_no_longer_than_published) {
  const Costs times = equal(1000, 1050, 900);
  EXPECT_EQ(idle(zero_bubble(8, 32, 8, {times}), times), 8050);
  EXPECT_LE(idle(zero_bubble(8, 32, 16, {times}), times), 1450);
}

TEST(ZeroBubble, any_order_verifies_within_its_cap) {
  for (const Costs& costs : {equal(1, 1, 1), equal(1000, 1050, 900, 70), equal(3, 1, 0), equal(0, 0, 0)}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int mbs = 0; mbs <= 20; mbs += kMicroBatchStep) {
        for (const int cap : {1, 2, stages, stages + 3, 2 * stages}) {
          const Schedule made = zero_bubble(stages, mbs, cap, {costs});
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
  const Timing timing = replay(zero_bubble(4, 16, 8, {costs}), costs);
  EXPECT_EQ(timing.idle[3], Seconds{0});  // the stage that all wait for
  EXPECT_EQ(timing.makespan, Seconds{3 + 16 * 6});
}

TEST(ZeroBubbleV, up_to_four_stages_dont_idle_and_more_idle_one_forward) {
  const Costs units = equal(1, 1, 1);
  for (int stages = 1; stages <= 8; ++stages) {
    for (const int mbs : {2 * stages, 3 * stages, 32}) {
      const Schedule made = zero_bubble_v(stages, mbs, 2 * stages, {units});
      EXPECT_LE(idle(made, units), stages <= 4 ? 0 : 1) << stages << " stages, " << mbs << " micro-batches";
    }
  }
  EXPECT_EQ(idle(zero_bubble_v(8, 32, 17, {units}), units), 0);  // with one more half activation
}

TEST(ZeroBubbleV, with_measured_times_it_idles_less_than_zero_bubble_in_the_same_memory) {
  const Costs halves = equal(500, 525, 450);
  EXPECT_LE(idle(zero_bubble_v(8, 32, 16, {halves}), halves), 1975);
}

TEST(ZeroBubbleV, any_order_verifies_within_its_cap) {
  for (const Costs& costs : {equal(1, 1, 1), equal(1000, 1050, 900, 70), equal(3, 1, 0), equal(0, 0, 0)}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int mbs = 0; mbs <= 20; mbs += kMicroBatchStep) {
        for (const int cap : {2, stages + 1, 2 * stages}) {
          const Schedule made = zero_bubble_v(stages, mbs, cap, {costs});
          EXPECT_NO_THROW(verify(made)) << stages << " stages, " << mbs << " micro-batches, cap " << cap;
          EXPECT_EQ(made.placement, Placement::v);
          EXPECT_THAT(peak_in_flight(made.order), Each(Le(cap)));
        }
      }
    }
  }
}

// Costs of random pipelines, most of them with a heavy last stage.
struct RandomPipeline {
  int stages, mbs;
  Costs costs, halves;  // halves: for two chunks per stage, in a V

  explicit RandomPipeline(unsigned seed) {
    std::mt19937 random(seed);
    const auto between = [&](double a, double b) { return a + (b - a) * static_cast<double>(random()) / 4294967296.0; };
    stages = 2 + static_cast<int>(random() % 5);
    mbs = 1 + static_cast<int>(random() % 32);
    const double b = between(0.7, 2.5), w = between(0.4, 1.3), head = random() % 3 > 0 ? between(0, 3) : 0,
                 uneven = random() % 3 > 0 ? 0 : 0.3;
    costs.send = halves.send = Seconds{random() % 2 > 0 ? between(0, 0.3) : 0};
    const auto fill = [&](Costs& made, int positions, double size) {
      for (int p = 0; p < positions; ++p) {
        const double load = size * (1 + between(-uneven, uneven)), of_head = p + 1 == positions ? head : 0;
        made.at.push_back({Seconds{load}, Seconds{load * b + 2 * of_head}, Seconds{load * w + of_head}});
      }
    };
    fill(costs, stages, 1);
    fill(halves, 2 * stages, 0.5);
  }
};

double makespan(const Schedule& made, const Costs& costs) { return replay(made, costs).makespan.count; }

TEST(ZeroBubble, never_loses_to_1f1b_of_the_same_memory) {
  for (unsigned seed = 1; seed <= 150; ++seed) {
    const RandomPipeline p(seed);
    const Schedule usual = one_f_one_b(p.stages, p.mbs);
    const Schedule made = zero_bubble(p.stages, p.mbs, p.stages, {p.costs});
    EXPECT_NO_THROW(verify(made));
    EXPECT_LE(makespan(made, p.costs), makespan(usual, p.costs) * (1 + 1e-12)) << "seed " << seed;
  }
  // Here no rule is as good: the order of 1F1B with split gradients is.
  const Costs uneven{.at = {{Seconds{0.8}, Seconds{1.6}, Seconds{1.5}},
                            {Seconds{1.8}, Seconds{0}, Seconds{0.1}},
                            {Seconds{1.6}, Seconds{0.5}, Seconds{0.2}}},
                     .send = Seconds{0.5}};
  const Schedule usual = one_f_one_b(3, 4);
  EXPECT_LE(makespan(zero_bubble(3, 4, 3, {uneven}), uneven), makespan(usual, uneven));
}

// The same stages on devices on which starting a pass takes long, or a send. saved: share of W that BW saves, twice as
// much on the last device.
std::vector<Costs> on_others(const Costs& costs, double saved = 0) {
  std::vector<Costs> all(3, costs);
  for (Costs& device : all)
    for (ItemTimes& times : device.at) times.saved = (&device == &all.back() ? 2 : 1) * saved * times.weight_gradient;
  for (ItemTimes& times : all[1].at)
    times = {times.forward + Seconds{3}, times.input_gradient + Seconds{3}, times.weight_gradient + Seconds{3},
             times.saved};
  all[2].send += Seconds{0.5};
  return all;
}

bool joins(const Schedule& made) {
  return std::ranges::any_of(
      made.order, [](const std::vector<Item>& items) { return std::ranges::count(items, Pass::BW, &Item::pass) > 0; });
}

TEST(ZeroBubble, made_for_several_devices_it_loses_on_none_of_them) {
  int others_lost = 0;  // schedules that were made for the first device alone
  int joined = 0, joined_v = 0;
  for (unsigned seed = 1; seed <= kPipelines; ++seed) {
    const RandomPipeline p(seed);
    const double saved = seed % 2 == 0 ? 0 : 0.05 * (seed % 10);
    const std::vector<Costs> devices = on_others(p.costs, saved), of_halves = on_others(p.halves, saved);
    const Schedule usual = one_f_one_b(p.stages, p.mbs), alone = zero_bubble(p.stages, p.mbs, p.stages, {p.costs});
    std::vector<double> before, before_v(of_halves.size(), std::numeric_limits<double>::infinity());
    for (const Costs& costs : devices) {
      before.push_back(makespan(usual, costs));
      others_lost += makespan(alone, costs) > before.back() * (1 + 1e-12) ? 1 : 0;
    }
    for (int more = 0; more <= p.stages; ++more) {
      const Schedule made = zero_bubble(p.stages, p.mbs, p.stages + more, devices),
                     turned = zero_bubble_v(p.stages, p.mbs, 2 * p.stages + more, of_halves);
      for (size_t i = 0; i < devices.size(); ++i) {
        const double now = makespan(made, devices[i]), now_v = makespan(turned, of_halves[i]);
        EXPECT_LE(now, before[i] * (1 + 1e-12)) << "seed " << seed << ", device " << i << ", more " << more;
        EXPECT_LE(now_v, before_v[i] * (1 + 1e-12)) << "V, seed " << seed << ", device " << i << ", more " << more;
        EXPECT_THAT(peak_in_flight(made.order), Each(Le(p.stages + more)));
        EXPECT_THAT(peak_in_flight(turned.order), Each(Le(2 * p.stages + more)));
        std::tie(before[i], before_v[i]) = std::pair(now, now_v);
      }
      EXPECT_TRUE(saved > 0 || (!joins(made) && !joins(turned))) << "seed " << seed;
      joined += joins(made) ? 1 : 0;
      joined_v += joins(turned) ? 1 : 0;
    }
  }
  EXPECT_GT(others_lost, 0);
  EXPECT_GT(joined, 0);
  EXPECT_GT(joined_v, 0);
}

// Stages of equal work, whose B and W take up to a half longer apart: joining those of an order that was made for B and
// W apart leaves V longer than 1F1B.
TEST(ZeroBubble, v_takes_about_as_long_as_1f1b_at_most_where_gradients_apart_cost_much) {
  for (const int stages : {2, 4, 8})
    for (const int rounds : {1, 3, 10})
      for (const double saved : {0.25, 0.5, 0.75}) {
        const ItemTimes half{Seconds{1}, Seconds{1.25}, Seconds{1}, Seconds{saved}};
        const ItemTimes both{Seconds{2}, Seconds{2.5}, Seconds{2}, Seconds{2 * saved}};
        const Costs halves{.at = std::vector(static_cast<size_t>(2 * stages), half), .send = Seconds{0.1}};
        const Costs whole{.at = {both}, .send = Seconds{0.1}};
        const int mbs = rounds * stages;
        const Schedule made = zero_bubble_v(stages, mbs, 2 * stages, {halves});
        EXPECT_THAT(peak_in_flight(made.order), Each(Le(2 * stages)));
        EXPECT_LE(makespan(made, halves), (stages == 8 ? 1.03 : 1) * makespan(one_f_one_b(stages, mbs), whole))
            << stages << " stages, " << mbs << " micro-batches, saved " << saved;
      }
}

TEST(ZeroBubble, more_memory_never_makes_it_longer) {
  for (unsigned seed = 1; seed <= kPipelines; ++seed) {
    const RandomPipeline p(seed);
    double before = std::numeric_limits<double>::infinity(), before_v = before;
    for (int cap = 1; cap <= 2 * p.stages + 2; ++cap) {
      const Schedule made = zero_bubble(p.stages, p.mbs, cap, {p.costs});
      EXPECT_THAT(peak_in_flight(made.order), Each(Le(cap)));
      const double now = makespan(made, p.costs);
      EXPECT_LE(now, before * (1 + 1e-12)) << "seed " << seed << ", cap " << cap;
      before = now;
      if (cap < 2) continue;
      const Schedule turned = zero_bubble_v(p.stages, p.mbs, cap, {p.halves});
      EXPECT_THAT(peak_in_flight(turned.order), Each(Le(cap)));
      const double now_v = makespan(turned, p.halves);
      EXPECT_LE(now_v, before_v * (1 + 1e-12)) << "V, seed " << seed << ", cap " << cap;
      before_v = now_v;
    }
  }
}

TEST(ZeroBubble, one_more_micro_batch_takes_about_what_the_slowest_stage_does_with_it) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    const RandomPipeline p(seed);
    double slowest = 0;
    for (int stage = 0; stage < p.stages; ++stage)
      slowest = std::max(slowest, (p.costs.of(Pass::F, stage) + p.costs.of(Pass::BW, stage)).count);
    const double few = makespan(zero_bubble(p.stages, 4 * p.stages, 2 * p.stages, {p.costs}), p.costs);
    const double many = makespan(zero_bubble(p.stages, 8 * p.stages, 2 * p.stages, {p.costs}), p.costs);
    EXPECT_GE((many - few) / (4 * p.stages), slowest * (1 - 0.1)) << "seed " << seed;
    EXPECT_LE((many - few) / (4 * p.stages), slowest * (1 + 0.1)) << "seed " << seed;
  }
}

// A case that once took longer than 1F1B: the last stage has a head as heavy as its layers.
TEST(ZeroBubble, a_heavy_last_stage_never_waits_once_it_works) {
  Costs costs;
  for (int stage = 0; stage < 4; ++stage) costs.at.push_back({Seconds{1}, Seconds{1.1}, Seconds{0.9}});
  costs.at[3] = {Seconds{1}, Seconds{1.1 + 1.6}, Seconds{0.9 + 0.8}};
  for (const int mbs : {4, 8, 12, 24, 48}) {
    const Schedule made = zero_bubble(4, mbs, 4, {costs}), usual = one_f_one_b(4, mbs);
    EXPECT_LT(makespan(made, costs), makespan(usual, costs) - 1) << mbs << " micro-batches";
    const Timing timing = replay(made, costs);
    EXPECT_EQ(timing.idle[3], Seconds{0}) << mbs << " micro-batches";
  }
}

TEST(ZeroBubble, senseless_numbers_are_refused) {
  EXPECT_THROW(zero_bubble(0, 1, 1, {equal(1, 1, 1)}), InternalError);
  EXPECT_THROW(zero_bubble(2, -1, 2, {equal(1, 1, 1)}), InternalError);
  EXPECT_THROW(zero_bubble(2, 1, 0, {equal(1, 1, 1)}), InternalError);
  EXPECT_THROW(zero_bubble(2, 1, 2, {equal(1, -1, 1)}), InternalError);
  EXPECT_THROW(zero_bubble_v(2, 1, 1, {equal(1, 1, 1)}), InternalError);
}

}  // namespace
}  // namespace switchyard::schedule
