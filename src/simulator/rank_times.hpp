// How each rank spends a step whose rows are timed.
#pragma once

#include <span>
#include <vector>

#include "ir/program.hpp"
#include "simulator/fold.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::simulator {

/// Of each rank: its compute queue's rows follow one another, and what its other queues do meanwhile overlaps them.
/// fold: rows of a class have the same times, and ranks of a class the same rows.
std::vector<RankTime> rank_times(const ir::Program& program, const std::vector<RowTime>& rows, double step_seconds, const Fold& fold);

}  // namespace switchyard::simulator
