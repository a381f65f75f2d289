#include "train/lr_schedule.hpp"

#include <cmath>
#include <numbers>

#include "base/errors.hpp"

namespace switchyard::train {

LearningRate schedule_of(const config::OptimizerSettings& optimizer, i64 run_steps) {
  return {.decay = optimizer.schedule,
          .peak = optimizer.lr,
          .floor = optimizer.min_lr,
          .warmup_steps = optimizer.warmup_steps,
          .decay_steps = optimizer.decay_steps > 0 ? optimizer.decay_steps : run_steps};
}

double learning_rate(const LearningRate& schedule, i64 step) {
  check(step >= 0, "learning rate of step {}: steps are counted from 0", step);
  const auto [decay, peak, floor, warmup, end] = schedule;
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == LearningRate::Decay::constant) return peak;
  if (step >= end) return floor;
  const double x = static_cast<double>(step - warmup) / static_cast<double>(end - warmup);
  const double share = decay == LearningRate::Decay::linear ? 1 - x : (1 + std::cos(std::numbers::pi * x)) / 2;
  return floor + share * (peak - floor);
}

}  // namespace switchyard::train
