// `switchyard bench switch`: the speed of a hot switch, compared with the memory bandwidth of this machine.
#pragma once

#include <string>

#include "config/job.hpp"
#include "config/model.hpp"

namespace switchyard::train {

/// A LLaMA in `precision`. Ranks are threads of this process, on GPUs that they share if there are fewer; home is where
/// `from` uses the parameters.
struct BenchSwitchSettings {
  config::ModelConfig model;
  int ranks = 2, repetitions = 7;
  std::string from = "1,2,1", to = "2,1,1", precision = "fp32";
  cluster::DeviceType device = cluster::DeviceType::cpu;
};

/// A switch is what an executor does between two phases of a step: for every unit of the model the working parameters
/// of the new strategy are allocated, the parts that a rank holds are copied into them, and the fabric moves the parts
/// that it lacks. Nothing is computed meanwhile.
///   switch_seconds  time of the tasks of from -> to and their bookkeeping: a program with phases from, to, to
///                   minus one with phases from, from (the second change to `to` moves nothing). In both, all
///                   working parameters of `from` are complete before the change begins, and those of `to`
///                   stay until it has ended.
///   copy_seconds    the bound: as many threads as ranks, all at once, each copy at once the bytes that their
///                   rank's working parameters receive, between two arrays that were used before: by memcpy on
///                   a CPU, by the device's own copy on a GPU.
/// Both are medians of alternating repetitions in one run, each timed from a common start to the end of the slowest
/// rank.
struct BenchSwitchResult {
  i64 moved_bytes = 0, copied_bytes = 0;  // sums over ranks: from other ranks, from the rank's own memory
  double switch_seconds = 0, copy_seconds = 0;
  /// Bytes that the working parameters received per second.
  double bytes_per_second() const { return static_cast<double>(moved_bytes + copied_bytes) / switch_seconds; }
  /// Share of the memory-copy bound: 1 is as fast as a copy.
  double share() const { return copy_seconds / switch_seconds; }
};

/// UserError if a strategy doesn't fit the model and the ranks, or the switch moves and copies nothing.
BenchSwitchResult bench_switch(const BenchSwitchSettings& settings);

}  // namespace switchyard::train
