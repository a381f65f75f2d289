#include "ir/softmax_groups.hpp"

#include <algorithm>

namespace switchyard::ir {

SoftmaxGroups softmax_groups(const StageCode& stage, const Instr& instr, const SoftmaxSums& sums) {
  const layout::Layout& weight = stage.buffers[static_cast<size_t>(instr.in[sums.weight])].layout;
  SoftmaxGroups made{{}, stage.buffers[static_cast<size_t>(instr.in[sums.statistics])].box[0].size(0)};
  for (int position = 0; position < stage.replica.size(); ++position) {
    std::vector<int> group = stage.replica.peers(position, weight.split[0]);
    if (std::ranges::min(group) == position) made.groups.push_back(std::move(group));
  }
  return made;
}

}  // namespace switchyard::ir
