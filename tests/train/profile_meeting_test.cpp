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

TEST(Meeting, gives_all_ranks_the_mean_of_each_number) {
  on_three([](Meeting& meeting) {
    const double rank = meeting.fabric().rank();
    EXPECT_EQ(meeting.mean({rank, 10 * rank}), (std::vector<double>{1, 10}));
  });
}

TEST(Meeting, times_a_call_on_all_ranks_and_on_the_slowest) {
  on_three([](Meeting& meeting) {
    const std::chrono::milliseconds nap(2 + 8 * (meeting.fabric().rank() == 2));
    const auto sleep = [&] { std::this_thread::sleep_for(nap); };
    const double mean = meeting.seconds_of(sleep), longest = meeting.longest_of(sleep);
    EXPECT_GE(mean, (2 + 2 + 10) / 3.0 * 1e-3);
    EXPECT_GE(longest, 10e-3);
    EXPECT_GT(longest, mean);
  });
}

}  // namespace
}  // namespace switchyard::train
