// Which of a job's buckets a step uses, by the documents that came.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cluster/hardware.hpp"
#include "compiler/step_planner.hpp"
#include "simulator/simulate.hpp"
#include "simulator/task_work.hpp"

namespace switchyard::simulator {

/// The sets of buckets that a step with documents of these lengths may use, each ascending: any in which no two have
/// the same max_length, one is long enough for the longest document, and each has a document.
std::vector<std::vector<int>> bucket_choices(std::span<const batch::BucketSpec> buckets, std::span<const i64> lengths);

/// A step that uses one of these sets. seconds: simulated.
struct ChosenStep {
  std::vector<int> buckets{};
  compiler::PlannedStep step{};
  double seconds = 0;
};

/// Simulates the steps of all choices. What it is made of outlives it. known: as for simulate().
class BucketChooser {
 public:
  BucketChooser(const compiler::StepSettings& settings, const compiler::Plans& plans, const cluster::Hardware& hardware,
                KnownSegments& known);
  /// Step index + 1 with the buckets that take the least time within the memory budget, of equals those that were
  /// found first; where none is within it, those with the lowest peak. The same for the same documents.
  ChosenStep choose(i64 index, const std::vector<i64>& lengths);

 private:
  const compiler::StepSettings& settings_;
  const compiler::Plans& plans_;
  const cluster::Hardware& hardware_;
  KnownSegments& known_;
};

}  // namespace switchyard::simulator
