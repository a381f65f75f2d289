#include "simulator/shared_resources.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace switchyard::simulator {
namespace {

// Keeps claims alive until the activity has ended.
int start(SharedResources& shared, double seconds, std::vector<Claim> claims) {
  static std::deque<std::vector<Claim>> kept;
  return shared.start(std::vector<Stretch>{{seconds, kept.emplace_back(std::move(claims))}});
}

std::map<int, double> ends(SharedResources& shared) {
  std::map<int, double> ends;
  for (int ended = shared.next(); ended >= 0; ended = shared.next()) ends[ended] = shared.now();
  return ends;
}

TEST(SharedResources, activities_on_resources_of_their_own_do_not_meet) {
  SharedResources shared(2);
  start(shared, 3, {{0, 1}});
  start(shared, 2, {{1, 1}});
  EXPECT_EQ(ends(shared), (std::map<int, double>{{0, 3}, {1, 2}}));
}

TEST(SharedResources, claims_up_to_the_whole_slow_nothing) {
  SharedResources shared(1);
  start(shared, 3, {{0, 0.5}});
  start(shared, 2, {{0, 0.5}});
  EXPECT_EQ(ends(shared), (std::map<int, double>{{0, 3}, {1, 2}}));
}

TEST(SharedResources, two_that_start_together_take_the_longer_and_the_slow_down_by_the_shorter) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> any(0.1, 2);
  for (int i = 0; i < 100; ++i) {
    const double a = any(random), b = any(random), k = 1 + any(random) / 2;
    SharedResources shared(1);
    start(shared, a, {{0, 1}});
    start(shared, b, {{0, k - 1}});
    ends(shared);
    EXPECT_NEAR(shared.now(), std::max(a, b) + (k - 1) * std::min(a, b), 1e-12);
  }
}

TEST(SharedResources, one_that_comes_later_slows_what_is_left) {
  SharedResources shared(2);
  start(shared, 4, {{0, 1}});
  const int mark = start(shared, 1, {{1, 1}});
  EXPECT_EQ(shared.next(), mark);
  start(shared, 1, {{0, 1}, {1, 1}});
  EXPECT_EQ(ends(shared), (std::map<int, double>{{0, 5}, {mark, 3}})) << "the number is free again; "
                                                                      << "both at half their rate for two seconds";
}

TEST(SharedResources, stretches_follow_one_another_and_have_their_ends_recorded) {
  SharedResources shared(1);
  const std::vector<Claim> much{{0, 1}}, little{{0, 0.25}};
  const int number = shared.start(std::vector<Stretch>{{2, much, 7}, {1, little, 8}, {3, much, 9}});
  EXPECT_EQ(shared.next(), number);
  EXPECT_EQ(shared.now(), 6);
  EXPECT_THAT(shared.ends(number), testing::ElementsAre(2, 3, 6));
  EXPECT_EQ(shared.stretches(number)[1].tag, 8);
}

TEST(SharedResources, one_that_comes_slows_the_stretches_that_it_meets) {
  SharedResources shared(2);
  const std::vector<Claim> much{{0, 1}}, little{{0, 0.25}}, half{{0, 0.5}}, other{{1, 1}};
  const int first = shared.start(std::vector<Stretch>{{2, much, 0}, {4, little, 0}, {3, much, 0}});
  const int clock = shared.start(std::vector<Stretch>{{5, other, 0}});
  EXPECT_EQ(shared.next(), clock);
  const int second = shared.start(
      std::vector<Stretch>{{3, half, 0}});  // one second beside the second stretch, the rest beside the third
  EXPECT_EQ(shared.next(), second);
  EXPECT_DOUBLE_EQ(shared.now(), 5 + 1 + 2 * 1.5);
  EXPECT_EQ(shared.next(), first);
  EXPECT_THAT(shared.ends(first), testing::ElementsAre(2, 6, testing::DoubleEq(10)));
}

TEST(SharedResources, stretches_take_as_long_as_activities_that_follow_one_another) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> any(0.1, 1);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::vector<Stretch>> chains(3);
    std::deque<std::vector<Claim>> claims;
    for (size_t c = 0; c < chains.size(); ++c)
      for (int n = 0; n < 4; ++n)
        chains[c].push_back(
            {any(random), claims.emplace_back(std::vector<Claim>{{static_cast<int>(c), any(random)}, {3, any(random)}}),
             n});
    SharedResources whole(4), parts(4);
    std::map<int, std::pair<size_t, size_t>> running;  // chain, stretch
    std::vector<double> ends(chains.size());
    for (size_t c = 0; c < chains.size(); ++c) {
      whole.start(chains[c]);
      running[parts.start(std::span(chains[c]).first(1))] = {c, 0};
    }
    for (int ended = parts.next(); ended >= 0; ended = parts.next()) {
      const auto [c, n] = running[ended];
      ends[c] = parts.now();
      if (n + 1 < chains[c].size()) running[parts.start(std::span(chains[c]).subspan(n + 1, 1))] = {c, n + 1};
    }
    for (int ended = whole.next(); ended >= 0; ended = whole.next())
      EXPECT_NEAR(whole.now(), ends[static_cast<size_t>(ended)], 1e-12);
  }
}

TEST(SharedResources, work_is_neither_lost_nor_made) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> any(0.1, 2);
  for (int i = 0; i < 50; ++i) {
    SharedResources shared(1);
    double work = 0;
    for (int a = 0; a < 6; ++a) {
      const double seconds = any(random);
      work += seconds;
      start(shared, seconds, {{0, 1}});
      if (a % 2 == 1) shared.next();
    }
    ends(shared);
    EXPECT_NEAR(shared.now(), work, 1e-9) << "the device is never free before all is done";
  }
}

}  // namespace
}  // namespace switchyard::simulator
