// The learning rate of each step, as a function of its number alone, so that a resumed run continues it exactly.
#pragma once

#include <string>

#include "config/job.hpp"

namespace switchyard::train {

/// Linear warm-up to `peak`, then decay to `floor`, which holds from step `decay_steps` on.
struct LearningRate {
  using Decay = config::LearningRateSchedule;
  Decay decay = Decay::cosine;
  double peak = 3e-4, floor = 0;
  i64 warmup_steps = 0;    // 0: none
  i64 decay_steps = 0;     // counted from step 0, warm-up included; constant and inverse_sqrt ignore it
  i64 cooldown_steps = 0;  // wsd: how many of them the decay takes
};

/// "cosine from 0.0003 to 0 at step 100, warm-up of 10 steps", as checkpoints keep it and messages name it.
std::string to_string(const LearningRate& schedule);

/// A job's schedule. Where it has no decay_steps the decay ends with the run, after `run_steps`. A run that goes on
/// after `done` steps keeps the end with which it began, `planned_end` (0: it begins).
/// UserError if such a run is to last longer, but does not say by decay_steps what the further steps do.
LearningRate schedule_of(const config::OptimizerSettings& optimizer, i64 run_steps, i64 planned_end = 0, i64 done = 0);

/// The rate of `step` (the first is 0), W = warmup_steps, E = decay_steps.
///   step < W   peak * (step + 1) / W, so that no step has rate 0 and the last one of the warm-up has the peak
///   step >= E  floor (unless constant or inverse_sqrt); a warm-up that ends after E is still finished first
///   between    with x = (step - W) / (E - W):  linear  floor + (1 - x) (peak - floor)
///                                              cosine  floor + (1 + cos(pi x)) / 2 (peak - floor)
///              wsd  peak before step E - cooldown_steps, then linear from there
///   inverse_sqrt  max(floor, peak sqrt(T / (T + n))), n steps after the first one with the peak, T = W, or 10000 steps
///                 without warm-up
/// source  cosine: arXiv 1608.03983; wsd: arXiv 2404.06395; inverse_sqrt: arXiv 1706.03762, T of transformers
/// InternalError if step is negative.
double learning_rate(const LearningRate& schedule, i64 step);

}  // namespace switchyard::train
