#include "schedule/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Costs equal(double f, double b, double w, double send = 0) {
  return {.at = {{Seconds{f}, Seconds{b}, Seconds{w}}}, .send = Seconds{send}};
}

TEST(Replay, one_f_one_b_idles_for_p_minus_1_micro_batches) {
  EXPECT_EQ(replay(one_f_one_b(8, 32), equal(1, 1, 1)).worst_idle(), Seconds{21});
  EXPECT_EQ(replay(one_f_one_b(8, 32), equal(1000, 1050, 900)).worst_idle(), Seconds{20650});
  for (int stages = 1; stages <= 8; ++stages) {
    EXPECT_EQ(replay(one_f_one_b(stages, 2 * stages), equal(1, 1, 1)).worst_idle(), Seconds{3.0 * (stages - 1)});
  }
}

TEST(Replay, items_start_when_stage_and_input_are_there) {
  Costs costs = equal(1, 2, 4, 10);
  costs.at.push_back({Seconds{3}, Seconds{5}, Seconds{7}});
  const Schedule made{
      .order = {{{Pass::F, 0, 0}, {Pass::B, 0, 0}, {Pass::W, 0, 0}}, {{Pass::F, 0, 0}, {Pass::BW, 0, 0}}}, .mbs = 1};
  const Timing timing = replay(made, costs);
  EXPECT_EQ(timing.spans[1][0].start, Seconds{11});
  EXPECT_EQ(timing.spans[1][1].start, Seconds{14});
  EXPECT_EQ(timing.spans[1][1].end, Seconds{26});
  EXPECT_EQ(timing.spans[0][1].start, Seconds{36});
  EXPECT_EQ(timing.spans[0][2].end, Seconds{42});
  EXPECT_THAT(timing.idle, ElementsAre(Seconds{35}, Seconds{0}));
  EXPECT_EQ(timing.makespan, Seconds{42});
  EXPECT_EQ(timing.longest_stage(), Seconds{42});
}

TEST(Replay, neighbouring_chunks_on_a_stage_send_nothing) {
  const std::vector<Item> stage{{Pass::F, 0, 0}, {Pass::F, 1, 0}, {Pass::BW, 1, 0}, {Pass::BW, 0, 0}};
  Schedule made{.order = {stage, stage}, .mbs = 1, .chunks = 2};
  EXPECT_EQ(replay(made, equal(1, 1, 1, 100)).makespan, Seconds{612});
  made.placement = Placement::v;
  EXPECT_EQ(replay(made, equal(1, 1, 1, 100)).makespan, Seconds{412});
}

TEST(Replay, nothing_to_do_takes_no_time) {
  const Timing timing = replay(gpipe(3, 0), equal(1, 1, 1));
  EXPECT_EQ(timing.makespan, Seconds{0});
  EXPECT_EQ(timing.worst_idle(), Seconds{0});
  EXPECT_EQ(timing.longest_stage(), Seconds{0});
}

TEST(Replay, senseless_times_are_refused) {
  const auto error = [](const Costs& costs) {
    try {
      replay(gpipe(3, 1), costs);
    } catch (const InternalError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  Costs two = equal(1, 1, 1);
  two.at.push_back(two.at[0]);
  EXPECT_EQ(error(two), "schedule: times of 2 positions for a pipeline of 3");
  EXPECT_THAT(error(equal(1, -1, 1)), HasSubstr("a time is negative or not finite: F 1, B -1, W 1, send 0"));
  EXPECT_THAT(error(equal(1, 1, std::numeric_limits<double>::quiet_NaN())), HasSubstr("not finite"));
}

}  // namespace
}  // namespace switchyard::schedule
