// Builds a page's run from a simulated step or from the folder of a real run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "batch/step_plan.hpp"
#include "cluster/hardware.hpp"
#include "compiler/job_plans.hpp"
#include "report/page.hpp"
#include "report/run_log.hpp"
#include "report/timeline.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::report {

/// A planned step of a job. simulation, hardware: null without a prediction.
struct PlannedView {
  const config::Job* job = nullptr;
  const compiler::Plans* plans = nullptr;
  const batch::StepPlan* plan = nullptr;
  const ir::Program* program = nullptr;
  const std::vector<i64>* lengths = nullptr;  // tokens of the step's documents
  const simulator::Simulation* simulation = nullptr;
  const cluster::Hardware* hardware = nullptr;
};

/// A simulated step; simulation and hardware are given.
Run simulated_run(const std::string& name, const PlannedView& step);

/// A real run of `job`. measured: its traced step. planned: the same step planned again, with or without a prediction;
/// null if that is impossible because the data is gone. Then buckets, links, switches and memory over time are missing.
Run measured_run(const std::string& name, const config::Job& job, const RunLog& log,
                 std::optional<MeasuredStep> measured, const PlannedView* planned);

/// Above these numbers, tracks are folded and spans are merged.
inline constexpr size_t kMostTracks = 64, kMostSpans = 30000;

}  // namespace switchyard::report
