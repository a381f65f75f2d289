#include "train/measurement_barrier.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

void on_three(const std::function<void(MeasurementBarrier&)>& work) {
  on_ranks(3, {}, cluster::uniform(1, 3), {}, [&](comm::Fabric& fabric) {
    MeasurementBarrier barrier(fabric);
    work(barrier);
  });
}

TEST(MeasurementBarrier, gives_all_ranks_the_mean_the_most_and_the_least_of_each_number) {
  on_three([](MeasurementBarrier& barrier) {
    const double rank = barrier.fabric().rank();
    EXPECT_EQ(barrier.mean({rank, 10 * rank}), (std::vector<double>{1, 10}));
    EXPECT_EQ(barrier.longest({rank, -rank}), (std::vector<double>{2, 0}));
    EXPECT_EQ(barrier.least({rank, -rank}), (std::vector<double>{0, -2}));
  });
}

TEST(MeasurementBarrier, times_a_call_on_the_slowest_or_the_fastest_rank) {
  on_three([](MeasurementBarrier& barrier) {
    const std::chrono::milliseconds nap(barrier.fabric().rank() == 2 ? 200 : 2);
    const auto sleep = [&] { std::this_thread::sleep_for(nap); };
    EXPECT_GE(barrier.longest_of([&] { return seconds_of(sleep); }), 0.2);
    const double least = barrier.least_of(sleep);
    EXPECT_GE(least, 2e-3);
    EXPECT_LT(least, 0.2);
  });
}

// The processor clock of a virtual machine does this now and then.
thread_local int readings = 0;
double clock_that_stands_still_at_times() {
  ++readings;
  return readings / 2 - (readings / 2) / 4;  // every fourth call takes no time, the others a second
}

TEST(MeasurementBarrier, passes_over_times_in_which_the_clock_stood_still) {
  on_three([](MeasurementBarrier& barrier) {
    readings = 0;
    EXPECT_EQ(barrier.least_of([] {}, clock_that_stands_still_at_times), 1);
  });
}

TEST(MeasurementBarrier, has_one_rank_of_each_host_measure_alone_in_turn) {
  std::mutex mutex;
  std::set<std::pair<int, int>> measured;  // number, rank
  on_ranks(5, {}, cluster::Cluster{{0, 0, 0, 1, 1}, {}}, {}, [&](comm::Fabric& fabric) {
    MeasurementBarrier barrier(fabric);
    for (int number = 0; number < 4; ++number) {
      const double most = barrier.alone(number, [&] {
        const std::lock_guard lock(mutex);
        measured.insert({number, fabric.rank()});
        return 1.0 + fabric.rank();
      });
      EXPECT_EQ(most, (std::vector<double>{4, 5, 4, 5})[static_cast<size_t>(number)]) << "on the second host";
    }
  });
  EXPECT_EQ(measured, (std::set<std::pair<int, int>>{{0, 0}, {0, 3}, {1, 1}, {1, 4}, {2, 2}, {2, 3}, {3, 0}, {3, 4}}));
}

}  // namespace
}  // namespace switchyard::train
