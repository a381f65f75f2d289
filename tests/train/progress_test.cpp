#include "train/progress.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
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
    return {
        .step = number, .loss = 4.123, .learning_rate = 3e-4, .grad_norm = 1.25, .tokens = tokens, .time = {seconds}};
  }

  std::ostringstream out_;
  Clock::time_point now_{};
};

TEST_F(ProgressTest, ALineShowsStepLossRateAndTimeLeft) {
  Progress progress(out_, settings(false));
  progress.step_done(step(35));
  EXPECT_EQ(out_.str(), "step 35/100  loss 4.1230  norm 1.25  lr 3.00e-04  3.4k tok/s  left 2 min 10 s\n");
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
  EXPECT_EQ(out_.str(), "step 100/100  loss 4.1230  norm 1.25  lr 3.00e-04  50 tok/s\n");
}

TEST_F(ProgressTest, ATerminalKeepsEveryNthLineAndShowsTheStepsBetweenOnALineThatIsRewritten) {
  ProgressSettings sparse = settings(true, 5);
  sparse.every = 3;
  Progress progress(out_, sparse);
  for (i64 number = 1; number <= 5; ++number) progress.step_done(step(number, 0));
  const std::string result = "  loss 4.1230  norm 1.25  lr 3.00e-04  0 tok/s", left = result + "  left 0 s";
  EXPECT_EQ(out_.str(), "step 1/5" + left + "\n\rstep 2/5" + left + "\x1b[K\rstep 3/5" + left +
                            "\x1b[K\r\x1b[Kstep 4/5" + left + "\nstep 5/5" + result + "\n");
}

TEST_F(ProgressTest, OnATerminalALongStepIsShownOnTheLineThatIsRewritten) {
  Progress progress(out_, settings(true, 2));
  progress.step_done(step(1));
  out_.str("");
  now_ += 3s;
  progress.tick();
  now_ += 3s;
  progress.tick();
  progress.step_done(step(2));
  const std::string result = "  loss 4.1230  norm 1.25  lr 3.00e-04  3.4k tok/s";
  EXPECT_EQ(out_.str(), "\rstep 2/2  running 3 s" + result + "  left 0 s\x1b[K\rstep 2/2  running 6 s" + result +
                            "  left 0 s\x1b[K\r\x1b[Kstep 2/2" + result + "\n");
}

TEST_F(ProgressTest, TheStepAfterWhichARunIsStoppedStaysAndNoneRunsAfterIt) {
  ProgressSettings sparse = settings(true, 9);
  sparse.every = 3;
  Progress progress(out_, sparse);
  progress.step_done(step(1));
  progress.step_done(step(2));
  progress.summarize();
  EXPECT_TRUE(
      out_.str().ends_with("  left 14 s\x1b[K\n2 steps, 14k tokens in 4 s (3.4k tok/s), loss 4.1230 -> 4.1230\n"))
      << out_.str();
  out_.str("");
  now_ += 10s;
  progress.tick();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, ShareOfThePeakAndMemoryAreShownWhereTheyAreKnown) {
  Progress progress(out_, settings(false));
  StepRecord record = step(100);
  record.matmul_share = 0.4567;
  record.peak_memory = {{100 << 20}, {139 << 20}, {1 << 20}};
  progress.step_done(record);
  EXPECT_EQ(out_.str(), "step 100/100  loss 4.1230  norm 1.25  lr 3.00e-04  3.4k tok/s  46% of peak  139 MiB\n");
}

TEST_F(ProgressTest, ANarrowTerminalLosesWhatMattersLeast) {
  ProgressSettings narrow = settings(true, 9);
  size_t columns = 0;
  narrow.columns = [&] { return columns; };
  StepRecord record = step(1);
  record.matmul_share = 0.5;
  record.peak_memory = {{1 << 20}};
  const auto shown = [&](size_t now) {
    columns = now;
    out_.str("");
    { Progress(out_, narrow).step_done(record); }
    const std::string text = out_.str();
    EXPECT_TRUE(text.ends_with('\n')) << text;
    return text.substr(0, text.size() - 1);
  };
  const std::string whole = "step 1/9  loss 4.1230  norm 1.25  lr 3.00e-04  3.4k tok/s  50% of peak  1 MiB  left 16 s";
  EXPECT_EQ(shown(0), whole) << "of unknown width";
  EXPECT_EQ(shown(whole.size() + 1), whole);
  EXPECT_EQ(shown(whole.size()), "step 1/9  loss 4.1230  norm 1.25  lr 3.00e-04  3.4k tok/s  50% of peak  left 16 s");
  EXPECT_EQ(shown(66), "step 1/9  loss 4.1230  3.4k tok/s  50% of peak  left 16 s");
  EXPECT_EQ(shown(40), "step 1/9  loss 4.1230  left 16 s");
  EXPECT_EQ(shown(30), "step 1/9  loss 4.1230");
  EXPECT_EQ(shown(5), "step");
}

TEST_F(ProgressTest, MessagesAndTheSummaryAreWrappedOnATerminalAtItsWidthThen) {
  ProgressSettings narrow = settings(true, 1);
  size_t columns = 0;
  narrow.columns = [&] { return columns; };
  Progress progress(out_, narrow);
  const std::string text = "data      one two three four";
  progress.say(text, 10);
  EXPECT_EQ(out_.str(), text + "\n");
  columns = 24;
  out_.str("");
  progress.say(text, 10);
  EXPECT_EQ(out_.str(), "data      one two three\n      four\n");
  columns = 40;
  progress.step_done(step(1));
  out_.str("");
  progress.summarize();
  EXPECT_EQ(out_.str(), "1 step, 6.8k tokens in 2 s (3.4k\ntok/s), loss 4.1230 -> 4.1230\n");
  narrow.terminal = false;
  out_.str("");
  Progress(out_, narrow).say(text, 10);
  EXPECT_EQ(out_.str(), text + "\n");
}

TEST_F(ProgressTest, ColoursAreOnlyOnATerminal) {
  ProgressSettings coloured = settings(true, 1);
  coloured.colour = true;
  {
    Progress progress(out_, coloured);
    progress.step_done(step(1));
  }
  EXPECT_EQ(out_.str(), "\x1b[1mstep 1/1\x1b[0m  loss 4.1230  norm 1.25  lr 3.00e-04  3.4k tok/s\n");
  coloured.terminal = false;
  out_.str("");
  Progress progress(out_, coloured);
  progress.step_done(step(1));
  EXPECT_EQ(out_.str().find('\x1b'), std::string::npos);
}

TEST_F(ProgressTest, ASummaryHasAllStepsOfTheRun) {
  Progress progress(out_, settings(false, 3));
  progress.summarize();
  EXPECT_EQ(out_.str(), "") << "no steps";
  StepRecord record = step(1, 30, 60'000);
  progress.step_done(record);
  record = step(2, 30, 60'000);
  record.skipped = true;
  record.loss = 99;
  progress.step_done(record);
  record = step(3, 60, 60'000);
  record.loss = 3.5;
  progress.step_done(record);
  out_.str("");
  progress.summarize();
  EXPECT_EQ(out_.str(), "3 steps, 180k tokens in 2 min 00 s (1.5k tok/s), loss 4.1230 -> 3.5000, 1 update skipped\n");
}

TEST_F(ProgressTest, EmulatedTimesAreCalledSoAndTheTimeLeftIsThatOnTheClock) {
  Progress progress(out_, settings(false, 3));
  StepRecord record = step(1);
  record.emulated = "2x4";
  now_ += std::chrono::seconds(5);
  progress.step_done(record);
  EXPECT_EQ(out_.str(), "step 1/3  loss 4.1230  norm 1.25  lr 3.00e-04  emulated 3.4k tok/s  left 10 s\n");
  out_.str("");
  progress.summarize();
  EXPECT_EQ(out_.str(), "1 step, 6.8k tokens in an emulated 2 s (3.4k tok/s), loss 4.1230 -> 4.1230\n");
}

TEST_F(ProgressTest, WithoutATerminalEveryNthStepAndTheLastAreShown) {
  ProgressSettings sparse = settings(false, 6);
  sparse.every = 3;
  Progress progress(out_, sparse);
  for (i64 number = 1; number <= 6; ++number) progress.step_done(step(number, 0));
  const std::string result = "  loss 4.1230  norm 1.25  lr 3.00e-04  0 tok/s";
  EXPECT_EQ(out_.str(), "step 1/6" + result + "  left 0 s\nstep 4/6" + result + "  left 0 s\nstep 6/6" + result + "\n");
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
  EXPECT_EQ(out_.str(), "step 2/4  running 4 s  loss 4.1230  norm 1.25  lr 3.00e-04  600 tok/s  left 26 s\n");
}

TEST_F(ProgressTest, AfterTheLastStepNothingIsPrinted) {
  Progress progress(out_, settings(false, 4));
  progress.step_done(step(4));
  out_.str("");
  now_ += 10s;
  progress.tick();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, WhatGoesOnBetweenTwoStepsIsReportedAlsoAfterTheLast) {
  Progress progress(out_, settings(false, 4));
  for (const i64 number : {3, 4}) {
    progress.step_done(step(number));
    progress.now("validating");
    out_.str("");
    now_ += 3s;
    progress.tick();
    EXPECT_THAT(out_.str(), testing::StartsWith(fmt::format("step {}/4  validating 3 s  loss 4.1230", number)));
    progress.now("");
  }
  out_.str("");
  now_ += 10s;
  progress.tick();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, AStepWithoutLabelsHasNoLoss) {
  Progress progress(out_, settings(false, 4));
  StepRecord record = step(1);
  record.loss.reset();
  progress.step_done(record);
  EXPECT_THAT(out_.str(), testing::StartsWith("step 1/4  no labels  norm"));
  progress.step_done(step(2));
  out_.str("");
  progress.summarize();
  EXPECT_THAT(out_.str(), testing::HasSubstr("loss 4.1230 -> 4.1230")) << "of the steps that have one";
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

TEST_F(ProgressTest, AMessageIsPrintedAboveTheLineThatIsRewritten) {
  ProgressSettings sparse = settings(true, 3);
  sparse.every = 3;
  {
    Progress progress(out_, sparse);
    progress.step_done(step(1));
    progress.say("above");
    progress.step_done(step(2));
    progress.say("between");
  }
  const std::string result = "  loss 4.1230  norm 1.25  lr 3.00e-04  3.4k tok/s  left ",
                    second = "\rstep 2/3" + result + "2 s\x1b[K";
  EXPECT_EQ(out_.str(), "step 1/3" + result + "4 s\nabove\n" + second + "\r\x1b[Kbetween\n" + second + "\n");
}

TEST_F(ProgressTest, OutputGoesOnWhenADiskThatWasFullHasRoomAgain) {
  Progress progress(out_, settings(false));
  out_.setstate(std::ios::badbit);  // a failed write does the same
  progress.step_done(step(2));
  EXPECT_THAT(out_.str(), testing::StartsWith("step 2/100"));
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
