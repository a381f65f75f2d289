#include "train/progress.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <sstream>
#include <string>
#include <thread>

namespace switchyard::train {
namespace {

using namespace std::chrono_literals;

/// A clock that the test moves.
class ProgressTest : public testing::Test {
 protected:
  ProgressSettings settings(bool terminal, i64 last_step = 100) {
    return {.first_step = 1, .last_step = last_step, .terminal = terminal, .every = 1, .now = [this] { return now_; }};
  }
  StepRecord step(i64 number, double seconds = 2, i64 tokens = 6800) {
    return {.step = number, .loss = 4.123, .tokens = tokens, .time = {seconds}};
  }

  std::ostringstream out_;
  Clock::time_point now_{};
};

TEST_F(ProgressTest, ALineShowsStepLossRateAndTimeLeft) {
  Progress progress(out_, settings(false));
  progress.step_done(step(35));
  EXPECT_EQ(out_.str(), "step 35/100  loss 4.1230  3.4k tok/s  left 2 min 10 s\n");
}

TEST_F(ProgressTest, TimeLeftFollowsTheLastTwentySteps) {
  Progress progress(out_, settings(false));
  progress.step_done(step(1, 1000));
  for (i64 number = 2; number <= 21; ++number) progress.step_done(step(number, 0.5));
  EXPECT_TRUE(out_.str().ends_with("left 40 s\n")) << out_.str();
}

TEST_F(ProgressTest, TheLastStepHasNoTimeLeft) {
  Progress progress(out_, settings(false));
  progress.step_done(step(100, 2, 100));
  EXPECT_EQ(out_.str(), "step 100/100  loss 4.1230  50 tok/s\n");
}

TEST_F(ProgressTest, ATerminalLineIsRewrittenInPlaceAndBlanksWhatWasLonger) {
  {
    Progress progress(out_, settings(true, 2));
    progress.step_done(step(1));
    progress.step_done(step(2, 2, 0));
  }
  const std::string first = "step 1/2  loss 4.1230  3.4k tok/s  left 2 s", second = "step 2/2  loss 4.1230  0 tok/s";
  EXPECT_EQ(out_.str(), "\r" + first + "\r" + second + std::string(first.size() - second.size(), ' ') + "\n");
}

TEST_F(ProgressTest, WithoutATerminalEveryNthStepAndTheLastAreShown) {
  ProgressSettings sparse = settings(false, 6);
  sparse.every = 3;
  Progress progress(out_, sparse);
  for (i64 number = 1; number <= 6; ++number) progress.step_done(step(number, 0));
  EXPECT_EQ(out_.str(),
            "step 1/6  loss 4.1230  0 tok/s  left 0 s\nstep 4/6  loss 4.1230  0 tok/s  left 0 s\nstep 6/6  loss 4.1230 "
            " 0 tok/s\n");
}

TEST_F(ProgressTest, ALongStepIsReportedAfterTwoSecondsOfSilence) {
  Progress progress(out_, settings(false, 4));
  now_ += 1900ms;
  progress.tick();
  EXPECT_EQ(out_.str(), "");
  now_ += 200ms;
  progress.tick();
  EXPECT_EQ(out_.str(), "step 1/4  running 2 s\n");
  progress.tick();
  EXPECT_EQ(out_.str(), "step 1/4  running 2 s\n");
  progress.step_done(step(1, 10, 6000));
  now_ += 4s;
  out_.str("");
  progress.tick();
  EXPECT_EQ(out_.str(), "step 2/4  running 4 s  loss 4.1230  600 tok/s  left 26 s\n");
}

TEST_F(ProgressTest, AfterTheLastStepNothingIsPrinted) {
  Progress progress(out_, settings(false, 4));
  progress.step_done(step(4));
  out_.str("");
  now_ += 10s;
  progress.tick();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, ASkippedStepIsAlwaysShown) {
  ProgressSettings sparse = settings(false, 10);
  sparse.every = 5;
  Progress progress(out_, sparse);
  StepRecord record = step(3);
  record.skipped = true;
  progress.step_done(record);
  EXPECT_EQ(out_.str(), "step 3/10  skipped: loss or gradient not finite  left 14 s\n");
}

TEST_F(ProgressTest, AMessageIsPrintedAboveTheRewrittenLine) {
  {
    Progress progress(out_, settings(true, 2));
    progress.step_done(step(1));
    progress.say("checkpoint saved");
    progress.step_done(step(2));
  }
  EXPECT_EQ(out_.str(),
            "\rstep 1/2  loss 4.1230  3.4k tok/s  left 2 s\ncheckpoint saved\n\rstep 2/2  loss 4.1230  3.4k tok/s\n");
}

TEST(ShortCounts, RatesKeepTwoDigitsAtLeast) {
  for (const auto& [tokens, text] : {std::pair<i64, const char*>{87, "  87 tok/s"},
                                     {999, "  999 tok/s"},
                                     {1000, "  1.0k tok/s"},
                                     {9949, "  9.9k tok/s"},
                                     {9950, "  10k tok/s"},
                                     {34400, "  34k tok/s"},
                                     {1200000, "  1.2M tok/s"}}) {
    std::ostringstream out;
    Progress progress(out, {.first_step = 1, .last_step = 1});
    progress.step_done({.step = 1, .tokens = tokens, .time = {1}});
    EXPECT_NE(out.str().find(text), std::string::npos) << out.str();
  }
}

TEST(Heartbeat, BeatsUntilDestroyedAndStopsAtOnce) {
  std::atomic<int> beats = 0;
  {
    const Heartbeat heartbeat([&] { ++beats; }, 1ms);
    while (beats < 3) std::this_thread::yield();
  }
  const int counted = beats;
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(beats, counted);
  const auto begin = Clock::now();
  {
    const Heartbeat slow([&] { ++beats; }, 1h);
  }
  EXPECT_LT(Clock::now() - begin, 10s);
}

}  // namespace
}  // namespace switchyard::train
