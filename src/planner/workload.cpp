#include "planner/workload.hpp"

#include <algorithm>

namespace switchyard::planner {

Workload workload_of(std::vector<std::vector<i64>> steps, i64 context, i64 shortest) {
  Workload workload{{context}, std::move(steps)};
  const auto between = [&](i64 above, i64 most) {
    return std::ranges::any_of(workload.steps, [&](const auto& lengths) {
      return std::ranges::any_of(lengths, [&](i64 length) { return length > above && length <= most; });
    });
  };
  for (i64 bound = (context + 1) / 2; bound >= shortest; bound = (bound + 1) / 2) {
    if (between(bound, workload.bounds.back())) workload.bounds.push_back(bound);
    if (bound == 1) break;
  }
  if (workload.bounds.size() > 1 && !between(0, workload.bounds.back())) workload.bounds.pop_back();
  std::ranges::reverse(workload.bounds);
  return workload;
}

}  // namespace switchyard::planner
