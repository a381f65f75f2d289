#include "schedule/join_gradients.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "../cases.hpp"
#include "base/errors.hpp"
#include "schedule/zero_bubble.hpp"

namespace switchyard::schedule {
namespace {

Costs equal(double f, double b, double w, double saved, double send = 0) {
  return {.at = {{Seconds{f}, Seconds{b}, Seconds{w}, Seconds{saved}}}, .send = Seconds{send}};
}

Schedule joined_with(const Schedule& apart, const std::vector<Costs>& devices, double slack) {
  return join_gradients(apart, devices, std::array{slack}).front();
}

int joined(const std::vector<Item>& items) {
  return static_cast<int>(std::ranges::count(items, Pass::BW, &Item::pass));
}

// The first stage waits for nobody; the last one has time in the steady state, as what it sends comes early.
TEST(JoinGradients, b_takes_the_next_w_s_place_for_its_own_where_the_makespan_stays) {
  const Costs costs = equal(1, 1, 1, 0.1);
  const Schedule apart = zero_bubble(4, 8, 4, {equal(1, 1, 1, 0)});
  ASSERT_EQ(to_string(apart.order[3]), "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7");
  const Schedule made = joined_with(apart, {costs}, 0);
  EXPECT_EQ(to_string(made.order[0]), "F0 F1 F2 F3 BW0 F4 BW1 F5 BW2 F6 BW3 F7 BW4 BW5 BW6 BW7");
  EXPECT_EQ(to_string(made.order[3]), "F0 B0 F1 B1 F2 B2 F3 BW3 F4 BW4 F5 BW5 F6 BW6 F7 B7 W0 W1 W2 W7");
  EXPECT_LE(replay(made, costs).makespan, replay(apart, costs).makespan);
}

TEST(JoinGradients, nothing_is_joined_where_nothing_is_saved) {
  const Schedule apart = zero_bubble(4, 8, 4, {equal(1, 1, 1, 0)});
  EXPECT_EQ(joined_with(apart, {equal(1, 1, 1, 0)}, 1), apart);
  Costs first{.at = std::vector<ItemTimes>(4, equal(1, 1, 1, 0).at[0])};
  first.at[0].saved = Seconds{0.2};
  const Schedule made = joined_with(apart, {first}, 1);
  EXPECT_EQ(joined(made.order[0]), 8);
  for (size_t stage = 1; stage < 4; ++stage) EXPECT_EQ(made.order[stage], apart.order[stage]);
}

TEST(JoinGradients, with_slack_all_are) {
  const Schedule made = joined_with(zero_bubble(4, 8, 4, {equal(1, 1, 1, 0)}), {equal(1, 1, 1, 0.1)}, 10);
  for (const std::vector<Item>& items : made.order) EXPECT_EQ(joined(items), 8);
}

TEST(JoinGradients, no_device_takes_longer_and_no_stage_holds_more) {
  int all = 0;
  for (unsigned seed = 1; seed <= cases(80u, 8u); ++seed) {
    std::mt19937 random(seed);
    const auto between = [&](double a, double b) { return a + (b - a) * static_cast<double>(random()) / 4294967296.0; };
    const int stages = 2 + static_cast<int>(random() % 5), mbs = 1 + static_cast<int>(random() % 24);
    for (const int chunks : {1, 2}) {
      std::vector<Costs> devices(2);
      for (Costs& device : devices) {
        device.send = Seconds{random() % 2 > 0 ? between(0, 0.3) : 0};
        for (int p = 0; p < stages * chunks; ++p) {
          const double weight = between(0.5, 1.5);
          device.at.push_back({Seconds{between(0.5, 1.5)}, Seconds{between(0.5, 2)}, Seconds{weight},
                               Seconds{weight * between(0, 0.5)}});
        }
      }
      const Schedule apart = chunks == 1 ? zero_bubble(stages, mbs, stages, {{.at = devices[0].at}})
                                         : zero_bubble_v(stages, mbs, 2 * stages, {{.at = devices[0].at}});
      Schedule split = apart;  // that one may have joined some
      for (std::vector<Item>& items : split.order) {
        std::vector<Item> both;
        for (const Item& item : items) {
          both.push_back({item.pass == Pass::BW ? Pass::B : item.pass, item.chunk, item.mb});
          if (item.pass == Pass::BW) both.push_back({Pass::W, item.chunk, item.mb});
        }
        items = both;
      }
      for (const double slack : {0.0, 0.03}) {
        const Schedule made = joined_with(split, devices, slack);
        verify(made);
        for (const Costs& device : devices)
          EXPECT_LE(replay(made, device).makespan.count, replay(split, device).makespan.count * (1 + slack + 1e-12))
              << "seed " << seed << ", " << chunks << " chunks, slack " << slack;
        const std::vector<int> before = peak_in_flight(split.order), now = peak_in_flight(made.order);
        for (size_t stage = 0; stage < now.size(); ++stage) EXPECT_LE(now[stage], before[stage]) << "seed " << seed;
        for (const std::vector<Item>& items : made.order) all += joined(items);
      }
    }
  }
  EXPECT_GT(all, 0);
}

TEST(JoinGradients, senseless_costs_are_refused) {
  const Schedule apart = zero_bubble(2, 2, 2, {equal(1, 1, 1, 0)});
  EXPECT_THROW(joined_with(apart, {}, 0), InternalError);
  EXPECT_THROW(joined_with(apart, {equal(1, 1, 1, 3)}, 0), InternalError);
}

}  // namespace
}  // namespace switchyard::schedule
