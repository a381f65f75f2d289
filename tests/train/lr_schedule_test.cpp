#include "train/lr_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "base/errors.hpp"

namespace switchyard::train {
namespace {

using Decay = LearningRate::Decay;

std::vector<double> rates(const LearningRate& schedule, i64 steps) {
  std::vector<double> rates;
  for (i64 step = 0; step < steps; ++step) rates.push_back(learning_rate(schedule, step));
  return rates;
}

MATCHER_P(Near, expected, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < expected; }

void expect_rates(const LearningRate& schedule, const std::vector<double>& expected) {
  EXPECT_THAT(rates(schedule, static_cast<i64>(expected.size())), testing::Pointwise(Near(1e-15), expected));
}

TEST(LearningRate, ConstantHoldsThePeakAfterTheWarmUp) {
  expect_rates({.decay = Decay::constant, .peak = 0.8, .warmup_steps = 4, .decay_steps = 2},
               {0.2, 0.4, 0.6, 0.8, 0.8, 0.8});
}

TEST(LearningRate, LinearFallsInEqualStepsAndThenStays) {
  expect_rates({.decay = Decay::linear, .peak = 1, .floor = 0.2, .warmup_steps = 2, .decay_steps = 6},
               {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
}

TEST(LearningRate, CosineIsHalfWayInTheMiddleAndFlatAtBothEnds) {
  const LearningRate schedule{.decay = Decay::cosine, .peak = 1, .floor = 0.5, .warmup_steps = 0, .decay_steps = 8};
  expect_rates(schedule, {1, 0.75 + 0.25 * std::cos(std::numbers::pi / 8), 0.75 + 0.25 * std::numbers::sqrt2 / 2});
  EXPECT_NEAR(learning_rate(schedule, 4), 0.75, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 6), 0.75 - 0.25 * std::numbers::sqrt2 / 2, 1e-15);
  EXPECT_EQ(learning_rate(schedule, 8), 0.5);
  EXPECT_EQ(learning_rate(schedule, 1000), 0.5);
}

TEST(LearningRate, FollowsTheJobAndDecaysUntilTheEndOfTheRunUnlessItSaysOtherwise) {
  config::OptimizerSettings optimizer{.lr = 1, .min_lr = 0.2, .schedule = Decay::linear, .warmup_steps = 2};
  expect_rates(schedule_of(optimizer, 6), {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
  optimizer.decay_steps = 4;
  expect_rates(schedule_of(optimizer, 6), {0.5, 1, 1, 0.6, 0.2, 0.2});
}

TEST(LearningRate, WsdStaysAtThePeakAndFallsAtTheEnd) {
  LearningRate schedule{
      .decay = Decay::wsd, .peak = 1, .floor = 0.2, .warmup_steps = 2, .decay_steps = 9, .cooldown_steps = 4};
  expect_rates(schedule, {0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
  schedule.cooldown_steps = 100;  // no longer than there is room after the warm-up
  schedule.decay_steps = 6;
  expect_rates(schedule, {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2});
}

TEST(LearningRate, InverseSqrtFallsWithTheRootOfTheStepDownToTheFloor) {
  expect_rates({.decay = Decay::inverse_sqrt, .peak = 1, .floor = 0.6, .warmup_steps = 2, .decay_steps = 1},
               {0.5, 1, std::sqrt(2. / 3), std::sqrt(2. / 4), std::sqrt(2. / 5), 0.6});
}

TEST(LearningRate, InverseSqrtWithoutWarmUpHalvesAfter30000Steps) {
  const LearningRate schedule{.decay = Decay::inverse_sqrt, .peak = 1};
  EXPECT_EQ(learning_rate(schedule, 0), 1);
  EXPECT_NEAR(learning_rate(schedule, 30000), 0.5, 1e-15);
}

TEST(LearningRate, WsdOfAJobFallsOverATenthUnlessItSaysOtherwise) {
  config::OptimizerSettings optimizer{.lr = 1, .schedule = Decay::wsd};
  EXPECT_EQ(schedule_of(optimizer, 50).cooldown_steps, 5);
  EXPECT_EQ(schedule_of(optimizer, 51).cooldown_steps, 6);
  optimizer.cooldown_steps = 9;
  EXPECT_EQ(schedule_of(optimizer, 50).cooldown_steps, 9);
}

TEST(LearningRate, ARunThatGoesOnKeepsItsEnd) {
  config::OptimizerSettings optimizer{.lr = 1, .min_lr = 0.2, .schedule = Decay::linear, .warmup_steps = 2};
  EXPECT_EQ(schedule_of(optimizer, 6, 10, 3).decay_steps, 10);
  EXPECT_EQ(schedule_of(optimizer, 10, 10, 3).decay_steps, 10);
  std::string message;
  try {
    schedule_of(optimizer, 20, 10, 10);
  } catch (const UserError& error) {
    message = error.what();
  }
  EXPECT_EQ(message,
            "run.steps = 20 is beyond step 10, where the learning rate of this run ends at min_lr = 0.2. Set "
            "optimizer.decay_steps = 10 to train the further steps at that rate, or 20 to stretch the decay over them: "
            "the next step then has 0.644 instead of 0.2.");
  optimizer.decay_steps = 20;
  EXPECT_EQ(schedule_of(optimizer, 20, 10, 10).decay_steps, 20);
  for (const Decay endless : {Decay::constant, Decay::inverse_sqrt})
    EXPECT_EQ(schedule_of({.schedule = endless}, 20, 10, 10).decay_steps, 0);  // which another may take for its own
}

TEST(LearningRate, ARunThatWasToEndInItsWarmUpGoesOnWithTheNewEnd) {
  const config::OptimizerSettings optimizer{.lr = 1, .schedule = Decay::linear, .warmup_steps = 9};
  const LearningRate before = schedule_of(optimizer, 4), after = schedule_of(optimizer, 20, 4, 4);
  EXPECT_EQ(after.decay_steps, 20);
  for (i64 step = 0; step < 4; ++step) EXPECT_EQ(learning_rate(before, step), learning_rate(after, step)) << step;
}

TEST(LearningRate, IsToldInWords) {
  config::OptimizerSettings optimizer{.lr = 3e-4, .min_lr = 1e-5, .schedule = Decay::cosine, .warmup_steps = 2};
  const auto words = [&](Decay decay) {
    optimizer.schedule = decay;
    return to_string(schedule_of(optimizer, 100));
  };
  EXPECT_EQ(words(Decay::cosine), "cosine from 0.0003 to 1e-05 at step 100, warm-up of 2 steps");
  EXPECT_EQ(words(Decay::wsd), "wsd from 0.0003 to 1e-05 at step 100 in 10 steps, warm-up of 2 steps");
  EXPECT_EQ(words(Decay::inverse_sqrt), "inverse-sqrt from 0.0003, at least 1e-05, warm-up of 2 steps");
  optimizer.warmup_steps = 0;
  EXPECT_EQ(words(Decay::constant), "constant at 0.0003");
}

TEST(LearningRate, NoStepOfARunHasRateZero) {
  for (const Decay decay : {Decay::constant, Decay::linear, Decay::cosine, Decay::wsd, Decay::inverse_sqrt})
    EXPECT_THAT(rates({.decay = decay, .peak = 1, .warmup_steps = 3, .decay_steps = 10, .cooldown_steps = 4}, 10),
                testing::Each(testing::Gt(0.0)));
}

TEST(LearningRate, AWarmUpLongerThanTheDecayIsFinishedFirst) {
  expect_rates({.decay = Decay::linear, .peak = 1, .floor = 0.1, .warmup_steps = 4, .decay_steps = 2},
               {0.25, 0.5, 0.75, 1, 0.1});
}

TEST(LearningRate, ANegativeStepIsRefused) {
  try {
    learning_rate({}, -1);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "learning rate of step -1: steps are counted from 0");
  }
}

}  // namespace
}  // namespace switchyard::train
