// How each rank spends a step whose tasks are timed.
#pragma once

#include <span>
#include <vector>

#include "ir/program.hpp"
#include "simulator/simulate.hpp"
#include "simulator/symmetry_folding.hpp"

namespace switchyard::simulator {

/// Of each rank: its compute queue's tasks follow one another, and what its other queues do meanwhile overlaps them.
/// fold: tasks of a class have the same times, and ranks of a class the same tasks.
std::vector<RankTime> rank_times(const ir::Program& program, const std::vector<TaskTime>& tasks, double step_seconds,
                                 const SymmetryFolding& fold);

}  // namespace switchyard::simulator
