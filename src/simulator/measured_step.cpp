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

double MeasuredStep::seconds(const ir::Task& task, int rank, int first, int end) const {
  const auto number = static_cast<int>(&task - program_.tasks.data());
  const std::vector<ir::ComputedTime>& times = of_rank_[static_cast<size_t>(rank)];
  double sum = 0;
  for (auto at = std::ranges::lower_bound(times, std::pair(number, first), {}, place_of);
       at != times.end() && place_of(*at) < std::pair(number, end); ++at)
    sum += at->seconds;
  return sum;
}

double MeasuredStep::slowest(const ir::Task& task) const {
  double longest = 0;
  for (const int rank : task.ranks)
    longest = std::max(longest, seconds(task, rank, ir::ComputedTime::kWholeTask, std::numeric_limits<int>::max()));
  return longest;
}

double MeasuredStep::slowest(const ir::Task& run, const std::vector<std::vector<int>>& groups, int first,
                             int end) const {
  double longest = 0;
  for (const std::vector<int>& group : groups) {
    double sum = 0;
    for (const int rank : group) sum += seconds(run, rank, first, end);
    longest = std::max(longest, sum / static_cast<double>(group.size()));
  }
  return longest;
}

}  // namespace switchyard::simulator
