// Shares work among ranks in few pieces, so that the most loaded one has little more than the mean.
#pragma once

#include <vector>

#include "base/dtype.hpp"

namespace switchyard::switching {

/// Work that any of the candidates may do, in any division.
struct Demand {
  i64 elements = 0;
  std::vector<int> candidates;  // ranks
  int partner = -1;     // rank at the other end (-1: no preference); candidates that have worked for it come first
  bool evenly = false;  // equal parts for all candidates, where that overloads none
};

/// Elements [begin, end) of a demand go to `rank`.
struct Part {
  int rank = 0;
  i64 begin = 0, end = 0;
  bool operator==(const Part&) const = default;
};

/// For each demand its parts, in order and without gaps. Demands with few candidates are served first. A rank is filled
/// up to the mean over all candidates, within an eighth; what fits nowhere is balanced over its candidates.
std::vector<std::vector<Part>> share(const std::vector<Demand>& demands);

}  // namespace switchyard::switching
