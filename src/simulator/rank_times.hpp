// How each rank spends a step whose tasks are timed.
#pragma once

#include <span>
#include <vector>

#include "ir/program.hpp"
#include "simulator/simulate.hpp"
#include "simulator/symmetry_folding.hpp"

namespace switchyard::simulator {

/// Compute, communication, overlap and idle time of each rank. The tasks of its compute queue run one after another;
/// the work of its other queues overlaps them. fold: tasks of a class have equal times, and ranks of a class equal
/// tasks.
std::vector<RankTime> rank_times(const ir::Program& program, const std::vector<TaskTime>& tasks, double step_seconds,
                                 const SymmetryFolding& fold);

}  // namespace switchyard::simulator
