// Which ranks of a replica sum the statistics of an operator.
#pragma once

#include <vector>

#include "ir/code.hpp"

namespace switchyard::ir {

/// groups: positions that have whole rows among them, for the same tokens; all groups sum at once. units: number of
/// those tokens, in units of token_unit. dtype: of the statistics.
struct StatisticGroups {
  std::vector<std::vector<int>> groups;
  i64 units = 0;
  DType dtype = DType::f32;
};
/// The groups of an instruction that has statistic_sums.
StatisticGroups statistic_groups(const StageCode& stage, const Instr& instr, const StatisticSums& sums);

}  // namespace switchyard::ir
