#include "train/lockstep.hpp"

#include <gtest/gtest.h>

#include <mutex>

#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

TEST(LockstepCurve, has_the_median_of_all_rounds_by_length) {
  const cluster::EfficiencyCurve curve = lockstep_curve({{1e-3, {0.5, 0.1, 0.6}}, {0.1, {0.75, 0.9, 0.7}}});
  EXPECT_EQ(curve, (cluster::EfficiencyCurve{{{1e-3, 0.5}, {0.1, 0.75}}}));
}

TEST(LockstepCurve, rises_with_length) {
  const cluster::EfficiencyCurve curve =
      lockstep_curve({{1e-3, {0.5}}, {1e-2, {1}}, {0.03, {0.75}}, {0.1, {0.5}}, {0.3, {1}}});
  EXPECT_EQ(curve, (cluster::EfficiencyCurve{{{1e-3, 0.5}, {1e-2, 0.75}, {0.03, 0.75}, {0.1, 0.75}, {0.3, 1}}}));
}

// A clock that only work and barriers move.
thread_local double virtual_now = 0;
double virtual_seconds() { return virtual_now; }

// Two ranks, of which one takes three times as long as the other one, and barriers of 5 us. shared: who waits leaves
// its time to the other one.
std::vector<Stretches> unlike_ranks(bool shared) {
  std::mutex mutex;
  std::vector<std::vector<Stretches>> found(2);
  on_ranks(2, {}, cluster::uniform(1, 2), {}, [&](comm::Fabric& fabric) {
    MeasurementBarrier barrier(fabric);
    virtual_now = 0;
    const double unit = fabric.rank() == 0 ? 1e-6 : 3e-6;
    const Work work = [&](i64 units) { virtual_now += static_cast<double>(units) * unit; };
    const auto wait = [&] {
      const double slowest = barrier.longest({virtual_now})[0], mean = barrier.mean({virtual_now})[0];
      virtual_now = (shared ? mean : slowest) + 5e-6;
    };
    const std::vector<Stretches> mine = timed_stretches(barrier, work, wait, 3, virtual_seconds);
    const std::lock_guard lock(mutex);
    found[static_cast<size_t>(fabric.rank())] = mine;
  });
  for (size_t length = 0; length < found[0].size(); ++length) {
    EXPECT_EQ(found[0][length].seconds, found[1][length].seconds);
    EXPECT_EQ(found[0][length].shares, found[1][length].shares);
  }
  return found[0];
}

TEST(TimedStretches, lose_what_the_slowest_takes_longer_than_the_mean) {
  const std::vector<Stretches> found = unlike_ranks(false);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_NEAR(found.front().seconds, 1e-3, 1e-4);
  EXPECT_NEAR(found.back().seconds, 0.3, 0.03);
  for (const Stretches& one : found) {
    ASSERT_EQ(one.shares.size(), 3u);
    for (const double share : one.shares) EXPECT_NEAR(share, 2.0 / 3, 1e-6) << "barriers don't count";
  }
}

TEST(TimedStretches, lose_nothing_where_the_one_that_waits_leaves_its_time_to_the_other) {
  for (const Stretches& one : unlike_ranks(true))
    for (const double share : one.shares) EXPECT_NEAR(share, 1, 1e-6);
}

TEST(ProfileLockstep, is_nothing_for_one_rank_and_a_rising_share_for_several) {
  for (const int ranks : {1, 2})
    on_ranks(ranks, {}, cluster::uniform(1, ranks), {}, [&](comm::Fabric& fabric) {
      MeasurementBarrier barrier(fabric);
      const cluster::EfficiencyCurve curve = profile_lockstep(barrier, {}, {}, true);
      EXPECT_EQ(curve.points.size(), ranks == 1 ? 0u : 4u);
      EXPECT_EQ(curve.error(), "");
    });
}

}  // namespace
}  // namespace switchyard::train
