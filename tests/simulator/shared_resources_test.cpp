#include "simulator/shared_resources.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cost/link_cost.hpp"

namespace switchyard::simulator {
namespace {

std::map<int, double> ends(SharedResources& shared) {
  std::map<int, double> ends;
  for (int ended = shared.next(); ended >= 0; ended = shared.next()) ends[ended] = shared.now();
  return ends;
}

TEST(SharedResources, activities_on_resources_of_their_own_do_not_meet) {
  SharedResources shared(2);
  shared.start(3, std::vector<Claim>{{0, 1}});
  shared.start(2, std::vector<Claim>{{1, 1}});
  EXPECT_EQ(ends(shared), (std::map<int, double>{{0, 3}, {1, 2}}));
}

TEST(SharedResources, claims_up_to_the_whole_slow_nothing) {
  SharedResources shared(1);
  shared.start(3, std::vector<Claim>{{0, 0.5}});
  shared.start(2, std::vector<Claim>{{0, 0.5}});
  EXPECT_EQ(ends(shared), (std::map<int, double>{{0, 3}, {1, 2}}));
}

TEST(SharedResources, two_that_start_together_take_what_overlapped_says) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> any(0.1, 2);
  for (int i = 0; i < 100; ++i) {
    const double a = any(random), b = any(random), k = 1 + any(random) / 2;
    SharedResources shared(1);
    shared.start(a, std::vector<Claim>{{0, 1}});
    shared.start(b, std::vector<Claim>{{0, k - 1}});
    ends(shared);
    EXPECT_NEAR(shared.now(), cost::overlapped({a}, {b}, k).count, 1e-12);
  }
}

TEST(SharedResources, one_that_comes_later_slows_what_is_left) {
  SharedResources shared(2);
  shared.start(4, std::vector<Claim>{{0, 1}});
  const int mark = shared.start(1, std::vector<Claim>{{1, 1}});
  EXPECT_EQ(shared.next(), mark);
  shared.start(1, std::vector<Claim>{{0, 1}, {1, 1}});
  EXPECT_EQ(ends(shared), (std::map<int, double>{{0, 5}, {2, 3}})) << "both at half their rate for two seconds";
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
      shared.start(seconds, std::vector<Claim>{{0, 1}});
      if (a % 2 == 1) shared.next();
    }
    ends(shared);
    EXPECT_NEAR(shared.now(), work, 1e-9) << "the device is never free before all is done";
  }
}

}  // namespace
}  // namespace switchyard::simulator
