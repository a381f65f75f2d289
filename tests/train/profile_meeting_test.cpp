#include "train/profile_meeting.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

void on_three(const std::function<void(Meeting&)>& work) {
  on_ranks(3, {}, cluster::uniform(1, 3), {}, [&](comm::Fabric& fabric) {
    Meeting meeting(fabric);
    work(meeting);
  });
}

TEST(Meeting, gives_all_ranks_the_mean_the_most_and_the_least_of_each_number) {
  on_three([](Meeting& meeting) {
    const double rank = meeting.fabric().rank();
    EXPECT_EQ(meeting.mean({rank, 10 * rank}), (std::vector<double>{1, 10}));
    EXPECT_EQ(meeting.longest({rank, -rank}), (std::vector<double>{2, 0}));
    EXPECT_EQ(meeting.least({rank, -rank}), (std::vector<double>{0, -2}));
  });
}

TEST(Meeting, times_a_call_on_the_slowest_or_the_quickest_rank) {
  on_three([](Meeting& meeting) {
    const std::chrono::milliseconds nap(meeting.fabric().rank() == 2 ? 200 : 2);
    const auto sleep = [&] { std::this_thread::sleep_for(nap); };
    EXPECT_GE(meeting.longest_of([&] { return seconds_of(sleep); }), 0.2);
    const double least = meeting.least_of(sleep);
    EXPECT_GE(least, 2e-3);
    EXPECT_LT(least, 0.2);
  });
}

}  // namespace
}  // namespace switchyard::train
