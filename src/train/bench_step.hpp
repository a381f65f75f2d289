// `switchyard bench step`: seconds and tokens per second of a whole training step on random tokens.
#pragma once

#include <string>
#include <vector>

#include "config/job.hpp"
#include "config/model.hpp"

namespace switchyard::train {

/// A LLaMA in `precision`. A step has `batch` documents of `seq` tokens, or documents of `lengths`, if any, packed into
/// micro-batches of up to `micro_batch` tokens. micro_batch 0: as many documents as fill the pipelines once, or the
/// longest. threads: of the whole run, divided among the ranks. device: GPUs are shared where there are fewer than
/// ranks.
struct BenchStepSettings {
  config::ModelConfig model;
  i64 seq = 1024, batch = 4, micro_batch = 0;
  std::vector<i64> lengths{};
  int ranks = 1, threads = 2, steps = 4;
  std::string strategy = "1,1,1", precision = "fp32";
  cluster::DeviceType device = cluster::DeviceType::cpu;
};

/// The lengths of documents in a text such as "4096,512x8": eight of 512 tokens. UserError for any other.
std::vector<i64> lengths_of(const std::string& text);

/// step_seconds: median of the steps after the first. peak_bytes: of the rank with the highest peak, or of the device
/// with it. matmul_share: flops of the model in a step, as in a run's log, by the rate of matrix products of all
/// devices at once. losses: one per step.
struct BenchStepResult {
  double tokens_per_second = 0, step_seconds = 0, matmul_share = 0;
  i64 peak_bytes = 0, parameters = 0;
  std::vector<double> losses, seconds;
};

BenchStepResult bench_step(const BenchStepSettings& settings);

}  // namespace switchyard::train
