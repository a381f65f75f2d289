// `switchyard bench switch`: how fast a hot switch is, against what the memory of this machine allows.
#pragma once

#include <string>

#include "config/model.hpp"

namespace switchyard::train {

/// A LLaMA in `precision`. Ranks are threads of this process; home lies where `from` uses the parameters.
struct BenchSwitchSettings {
  config::ModelConfig model;
  int ranks = 2, repetitions = 7;
  std::string from = "1,2,1", to = "2,1,1", precision = "fp32";
};

/// A switch is what an executor does between two phases of a step: for every unit of the model working parameters of
/// the new strategy is made, what a rank has is copied into it, what it lacks is moved into it by the fabric. Nothing
/// is computed meanwhile.
///   switch_seconds  of the rows from -> to, a change to `to` again, which brings nothing, and their bookkeeping: the
///   time of a
///                   program with phases from, to, to less that of one with phases from, from. In both all working
///                   parameters of `from` are complete before the change begins, and those of `to` stay until it has
///                   ended.
///   copy_seconds    the bound: as many threads as ranks, all at once, each copy by one memcpy as many bytes as their
///   rank's working parameters
///                   get, between two arrays of their own that were used before.
/// Both are medians of alternating repetitions in one run, each timed from a common start to the end of the slowest
/// rank.
struct BenchSwitchResult {
  i64 moved_bytes = 0, copied_bytes = 0;  // of all ranks: from other ranks, from the rank's own memory
  double switch_seconds = 0, copy_seconds = 0;
  /// What the working parameters got per second.
  double bytes_per_second() const { return static_cast<double>(moved_bytes + copied_bytes) / switch_seconds; }
  /// Share of the memory-copy bound: 1 is as fast as memcpy.
  double share() const { return copy_seconds / switch_seconds; }
};

/// UserError if a strategy doesn't fit the model and ranks, or the switch brings nothing to any rank.
BenchSwitchResult bench_switch(const BenchSwitchSettings& settings);

}  // namespace switchyard::train
