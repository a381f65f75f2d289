#include "simulator/measured_step.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace switchyard::simulator {
namespace {

auto place_of(const ir::ComputedTime& time) { return std::pair(time.task, time.instr); }

}  // namespace

MeasuredStep::MeasuredStep(const ir::Program& program, std::vector<std::vector<ir::ComputedTime>> of_rank)
    : program_(program), of_rank_(std::move(of_rank)) {
  for (std::vector<ir::ComputedTime>& times : of_rank_) std::ranges::sort(times, {}, place_of);
}

double MeasuredStep::slowest(const ir::Task& task, int first, int end) const {
  const auto number = static_cast<int>(&task - program_.tasks.data());
  double longest = 0;
  for (const int rank : task.ranks) {
    const std::vector<ir::ComputedTime>& times = of_rank_[static_cast<size_t>(rank)];
    double seconds = 0;
    for (auto at = std::ranges::lower_bound(times, std::pair(number, first), {}, place_of);
         at != times.end() && place_of(*at) < std::pair(number, end); ++at)
      seconds += at->seconds;
    longest = std::max(longest, seconds);
  }
  return longest;
}

double MeasuredStep::slowest(const ir::Task& task) const {
  return slowest(task, ir::ComputedTime::kWholeTask, std::numeric_limits<int>::max());
}

}  // namespace switchyard::simulator
