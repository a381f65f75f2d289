// Memory of the ranks over a step.
#pragma once

#include <functional>
#include <vector>

#include "report/page.hpp"

namespace switchyard::report {

/// When a task of the Program starts on a rank, in seconds from the step's start.
using TaskStart = std::function<double(int rank, int id)>;

/// One rank's memory_by_task over time: what its fullest moment takes counts from a task's start to the next one's.
/// Tasks that streams start out of order count from the latest start so far.
MemoryCurve curve_of(int rank, const std::vector<compiler::MemoryPeak>& tasks, const TaskStart& start);
/// At most `most` points; of neighbours the fullest is kept, so peaks stay.
void thin(MemoryCurve& curve, size_t most);

/// Predicted peaks of all ranks, and curves of the fullest: ranks with equal ones together, the fullest first, at most
/// `most` of them.
Memory memory_of(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                 const TaskStart& start, size_t most);

}  // namespace switchyard::report
