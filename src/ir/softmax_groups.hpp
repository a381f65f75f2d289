// Which ranks of a replica sum the statistics of a softmax.
#pragma once

#include <vector>

#include "ir/code.hpp"

namespace switchyard::ir {

/// groups: positions that have the rows of the weight among them, for the same tokens; all groups sum at once. units:
/// number of those tokens, in units of token_unit.
struct SoftmaxGroups {
  std::vector<std::vector<int>> groups;
  i64 units = 0;
};
/// Of an instruction that has softmax_sums.
SoftmaxGroups softmax_groups(const StageCode& stage, const Instr& instr, const SoftmaxSums& sums);

}  // namespace switchyard::ir
