// Memory of the ranks over a step.
#pragma once

#include <functional>
#include <vector>

#include "report/page.hpp"

namespace switchyard::report {

/// When a task of the Program starts on a rank, in seconds from the step's start.
using TaskStart = std::function<double(int rank, int id)>;

/// One rank's memory_by_task over time: the peak during a task counts from its start to the start of the next task.
/// A task that its stream starts out of order counts from the latest start so far.
MemoryCurve curve_of(int rank, const std::vector<compiler::MemoryPeak>& tasks, const TaskStart& start);
/// Reduces the curve to at most `most` points. Of neighbouring points the highest is kept, so peaks remain.
void thin(MemoryCurve& curve, size_t most);

/// Predicted peaks of all ranks, and at most `most` curves in order of falling peaks; ranks with equal curves share
/// one.
Memory memory_of(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                 const TaskStart& start, size_t most);

}  // namespace switchyard::report
