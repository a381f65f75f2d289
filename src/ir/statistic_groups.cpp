#include "ir/statistic_groups.hpp"

#include <algorithm>

namespace switchyard::ir {

StatisticGroups statistic_groups(const StageCode& stage, const Instr& instr, const StatisticSums& sums) {
  const layout::Layout& cut = stage.buffers[static_cast<size_t>(instr.in[sums.cut])].layout;
  const size_t inputs = instr.in.size();
  const Buffer& statistics = stage.buffers[static_cast<size_t>(
      sums.statistics < inputs ? instr.in[sums.statistics] : instr.out[sums.statistics - inputs])];
  StatisticGroups made{{}, statistics.box[0].size(0), statistics.type.dtype};
  for (int position = 0; position < stage.replica.size(); ++position) {
    std::vector<int> group = stage.replica.peers(position, cut.split[sums.dim]);
    if (std::ranges::min(group) == position) made.groups.push_back(std::move(group));
  }
  return made;
}

}  // namespace switchyard::ir
