#include "train/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/errors.hpp"

namespace switchyard::train {
namespace {

constexpr double kInverseSqrtSteps = 10000;  // without a warm-up

LearningRate with_end(const config::OptimizerSettings& optimizer, i64 end) {
  const i64 cooldown = optimizer.cooldown_steps > 0 ? optimizer.cooldown_steps : (end + 9) / 10;
  return {.decay = optimizer.schedule,
          .peak = optimizer.lr,
          .floor = optimizer.min_lr,
          .warmup_steps = optimizer.warmup_steps,
          .decay_steps = end,
          .cooldown_steps = cooldown};
}

double inverse_sqrt(const LearningRate& schedule, i64 step) {
  const i64 warmup = schedule.warmup_steps;
  const double steps = warmup > 0 ? static_cast<double>(warmup) : kInverseSqrtSteps;
  const auto after = static_cast<double>(step - std::max<i64>(warmup - 1, 0));
  return std::max(schedule.floor, schedule.peak * std::sqrt(steps / (steps + after)));
}

}  // namespace

LearningRate schedule_of(const config::OptimizerSettings& optimizer, i64 run_steps, i64 planned_end, i64 done) {
  using Decay = LearningRate::Decay;
  if (optimizer.schedule == Decay::constant || optimizer.schedule == Decay::inverse_sqrt) return with_end(optimizer, 0);
  if (optimizer.decay_steps > 0) return with_end(optimizer, optimizer.decay_steps);
  // A run that was to end in its warm-up has had the same rates with any end.
  const LearningRate planned = with_end(optimizer, planned_end > optimizer.warmup_steps ? planned_end : run_steps);
  if (run_steps > planned.decay_steps) {
    user_error(
        "run.steps = {} is beyond step {}, where the learning rate of this run ends at min_lr = {}. Set "
        "optimizer.decay_steps = {} to train the further steps at that rate, or {} to stretch the decay over them: "
        "the next step then has {:.3g} instead of {:.3g}.",
        run_steps, planned.decay_steps, planned.floor, planned.decay_steps, run_steps,
        learning_rate(with_end(optimizer, run_steps), done), learning_rate(planned, done));
  }
  return planned;
}

std::string to_string(const LearningRate& schedule) {
  using Decay = LearningRate::Decay;
  std::string text(config::name_of(schedule.decay));
  if (schedule.decay == Decay::constant)
    text += fmt::format(" at {}", schedule.peak);
  else if (schedule.decay == Decay::inverse_sqrt)
    text += fmt::format(" from {}, at least {}", schedule.peak, schedule.floor);
  else
    text += fmt::format(" from {} to {} at step {}", schedule.peak, schedule.floor, schedule.decay_steps);
  if (schedule.decay == Decay::wsd) text += fmt::format(" in {} steps", schedule.cooldown_steps);
  if (schedule.warmup_steps > 0) text += fmt::format(", warm-up of {} steps", schedule.warmup_steps);
  return text;
}

double learning_rate(const LearningRate& schedule, i64 step) {
  using Decay = LearningRate::Decay;
  check(step >= 0, "learning rate of step {}: steps are counted from 0", step);
  const auto [decay, peak, floor, warmup, end, cooldown] = schedule;
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == Decay::constant) return peak;
  if (decay == Decay::inverse_sqrt) return inverse_sqrt(schedule, step);
  if (step >= end) return floor;
  const i64 begin = decay == Decay::wsd ? std::max(warmup, end - cooldown) : warmup;
  if (step < begin) return peak;
  const double x = static_cast<double>(step - begin) / static_cast<double>(end - begin);
  const double share = decay == Decay::cosine ? (1 + std::cos(std::numbers::pi * x)) / 2 : 1 - x;
  return floor + share * (peak - floor);
}

}  // namespace switchyard::train
