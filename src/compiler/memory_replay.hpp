// The replay of a rank's tasks with what each takes and drops.
#pragma once

#include <vector>

#include "batch/step_plan.hpp"
#include "compiler/holdings.hpp"
#include "compiler/local_stage.hpp"
#include "compiler/memory.hpp"
#include "compiler/worst_order.hpp"
#include "ir/program.hpp"

namespace switchyard::compiler {

/// by_phase: the highest total while a phase computes, in bytes.
struct ReplayedMemory {
  MemoryPeak peak{};
  std::vector<i64> by_phase{};
};

/// order: of the tasks of the holdings' rank. worst: receives are posted as early as they can be. stages: what replays
/// of the same plans have in common.
ReplayedMemory replay_memory(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                             const Holdings& holdings, std::vector<Moment> order, bool worst, LocalStages& stages);

/// Receives are posted where their queues come to them. What the rank takes before its first task, then the peak within
/// each of its tasks, in their order.
std::vector<MemoryPeak> replay_by_task(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                       const Holdings& holdings, std::vector<Moment> order, LocalStages& stages);

}  // namespace switchyard::compiler
