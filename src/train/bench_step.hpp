// `switchyard bench step`: seconds and tokens per second of a whole training step on random tokens.
#pragma once

#include <string>
#include <vector>

#include "config/model.hpp"

namespace switchyard::train {

/// A LLaMA in `precision`, `batch` documents of `seq` tokens per step. threads: of the whole run, divided among the
/// ranks.
struct BenchStepSettings {
  config::ModelConfig model;
  i64 seq = 1024, batch = 4;
  int ranks = 1, threads = 2, steps = 4;
  std::string strategy = "1,1,1", precision = "fp32";
};

/// step_seconds: median of the steps after the first. peak_bytes: of the rank with the highest peak. losses: one per
/// step.
struct BenchStepResult {
  double tokens_per_second = 0, step_seconds = 0;
  i64 peak_bytes = 0, parameters = 0;
  std::vector<double> losses, seconds;
};

BenchStepResult bench_step(const BenchStepSettings& settings);

}  // namespace switchyard::train
