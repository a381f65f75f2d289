// Emulated clusters: what a step would take on devices that compute as cores of this machine do, and are joined by
// other links. Ranks compute for real, at any pace; how long each operator computed, by processor time, and the links
// of the emulated cluster give the step's time there, task by task.
#pragma once

#include <vector>

#include "comm/launch.hpp"
#include "config/job.hpp"
#include "simulator/simulate.hpp"
#include "simulator/task_work.hpp"
#include "simulator/trace.hpp"
#include "train/metrics.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// UserError unless the job's ranks, as threads of this process with one compute thread each, are the devices.
void require_emulation(const config::Job& job, const cluster::Hardware& emulated, const comm::Launch& launch);

class Emulation {
 public:
  explicit Emulation(const cluster::Hardware& hardware) : hardware_(hardware) {}
  /// The rank's last step, with what every rank computed in it.
  simulator::Simulation step(const Rank& rank, const batch::StepPlan& plan,
                             std::vector<std::vector<ir::ComputedTime>> computed);

 private:
  const cluster::Hardware& hardware_;
  simulator::KnownSegments known_;
};

/// Sets the times of the record to those of an emulated step, and of planning it, which comes before.
void set_times(StepRecord& record, const simulator::Simulation& step, Seconds planning, const ir::Program& program);

/// Times at which the tasks of each rank worked.
std::vector<std::vector<simulator::TracedSpan>> spans_of(const simulator::Simulation& step, const ir::Program& program);

}  // namespace switchyard::train
