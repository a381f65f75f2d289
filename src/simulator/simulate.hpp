// Time of a step before it runs: the tasks of a Program on the streams of all ranks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "batch/step_plan.hpp"
#include "cluster/hardware.hpp"
#include "compiler/assemble.hpp"

namespace switchyard::simulator {

class KnownSegments;
class MeasuredStep;

/// How a rank spends a step: compute + communication - overlap + idle is the step. communication: any of its streams
/// transfers; overlap: while it computes, what collectives within runs hide included.
struct RankTime {
  double compute = 0, communication = 0, overlap = 0, idle = 0;
};

/// Seconds from the step's start. communication: transfers, collectives and the working parameters' copies; otherwise
/// computing. While a task does both there are two spans of equal times, that of computing first.
struct Span {
  double begin = 0, end = 0;
  bool communication = false;
};
/// A task while it works, without what it waits for.
struct TaskTime {
  double begin = 0, end = 0;
  std::span<const Span> spans;  // tasks of a class have the same ones
};

struct Simulation {
  double step_seconds = 0;
  std::vector<RankTime> ranks;
  std::vector<TaskTime> tasks;                                 // times of the Program's tasks
  std::shared_ptr<const std::vector<std::vector<Span>>> kept;  // where the tasks' spans lie
};

/// Each rank's streams take their tasks in order and side by side; a task starts when its streams are free on all its
/// ranks and what it waits for is done, a run stops within for parameters that are not there yet, and a unit's
/// gradients are there before its run ends. What works at the same time shares devices and ports
/// (shared_resources.hpp): a transfer, also one within a run, takes a part of the devices of its ranks, and transfers
/// divide a port that they both fill. Tasks that must have equal times are simulated once (symmetry_folding.hpp).
/// known: of other simulations of plans of the same model, whose strategies it refers to. measured: of a step of the
/// program that ran, what its ranks computed, which then takes that long; transfers are simulated as ever.
/// errors  UserError if the hardware has no rates for a data type; InternalError if it has other ranks than the plans
Simulation simulate(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                    const cluster::Hardware& hardware, KnownSegments& known, const MeasuredStep* measured = nullptr);
Simulation simulate(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                    const cluster::Hardware& hardware);

}  // namespace switchyard::simulator
