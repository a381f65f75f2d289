#include "comm/silence.hpp"

#include <gtest/gtest.h>

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;

TEST(Silence, IsOverAfterTheTimeout) {
  const Silence::Clock::time_point begin{};
  Silence silence(8s, begin);
  EXPECT_EQ(silence.step(), 1s);
  for (int second = 1; second < 8; ++second) EXPECT_FALSE(silence.over(begin + second * 1s)) << second;
  EXPECT_TRUE(silence.over(begin + 8s));
}

TEST(Silence, BeginsAnewWhenSomethingIsHeard) {
  const Silence::Clock::time_point begin{};
  Silence silence(8s, begin);
  for (int second = 1; second < 30; ++second) {
    if (second % 7 == 0) silence.restart();
    EXPECT_FALSE(silence.over(begin + second * 1s)) << second;
  }
}

TEST(Silence, TheTimeInWhichTheProcessStandsStillHardlyCounts) {
  const Silence::Clock::time_point begin{};
  Silence silence(8s, begin);
  EXPECT_FALSE(silence.over(begin + 1s));
  EXPECT_FALSE(silence.over(begin + 1h));
  for (int second = 1; second < 6; ++second) EXPECT_FALSE(silence.over(begin + 1h + second * 1s)) << second;
  EXPECT_TRUE(silence.over(begin + 1h + 6s));
}

TEST(WorkSigns, AreDueOnceInEachStepInWhichTheRankWorks) {
  WorkSigns signs(8s);
  Silence::Clock::time_point now = Silence::Clock::time_point{} + 1h;
  EXPECT_FALSE(signs.due(now));
  signs.worked();
  EXPECT_TRUE(signs.due(now));
  EXPECT_FALSE(signs.due(now + 2s)) << "it has not worked since then";
  signs.worked();
  EXPECT_TRUE(signs.due(now += 3s));
  signs.worked();
  EXPECT_FALSE(signs.due(now + 500ms)) << "this step's was given";
  EXPECT_TRUE(signs.due(now + 1s));
}

TEST(Silence, AWaitEndsWhenItIsDoneOrNothingWasHeardForTheTimeout) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  EXPECT_TRUE(wait_within(changed, lock, 20ms, [] { return true; }));
  EXPECT_FALSE(wait_within(changed, lock, 20ms, [] { return false; }));
  int asked = 0;
  EXPECT_FALSE(wait_within(
      changed, lock, 20ms, [] { return false; }, [&] { return ++asked < 100; }));
  EXPECT_GT(asked, 100);
  asked = 0;
  EXPECT_TRUE(wait_within(
      changed, lock, 20ms, [&] { return asked == 50; }, [&] { return ++asked > 0; }));
}

}  // namespace
}  // namespace switchyard::comm
