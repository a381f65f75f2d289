// Memory of the ranks over a step.
#pragma once

#include <functional>
#include <vector>

#include "report/page.hpp"

namespace switchyard::report {

/// When a row of the Program starts on a rank, in seconds from the step's start.
using RowStart = std::function<double(int rank, int row)>;

/// One rank's memory_by_row over time: what its fullest moment takes counts from a row's start to the next one's. Rows that streams start
/// out of order count from the latest start so far.
MemoryCurve curve_of(int rank, const std::vector<compiler::MemoryPeak>& rows, const RowStart& start);
/// At most `most` points; of neighbours the fullest is kept, so peaks stay.
void thin(MemoryCurve& curve, size_t most);

/// Predicted peaks of all ranks, and curves of the fullest: ranks with equal ones together, the fullest first, at most `most` of them.
Memory memory_of(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans, const RowStart& start, size_t most);

}  // namespace switchyard::report
