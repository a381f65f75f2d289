#include "planner/range_candidates.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace switchyard::planner {

RangeCandidates::RangeCandidates(std::vector<std::unique_ptr<RangeQueue>> parts, int placements)
    : parts_(std::move(parts)), listed_(parts_.size(), 0), placements_(placements) {}

void RangeCandidates::list() {
  for (size_t part = 0; part < parts_.size(); ++part)
    for (size_t& next = listed_[part]; next < parts_[part]->options().size(); ++next) options_.emplace_back(part, next);
}

double RangeCandidates::least() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& part : parts_) least = std::min(least, part->least());
  return least;
}

double RangeCandidates::least_of_options() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& part : parts_) least = std::min(least, part->least_of_options());
  return least;
}

double RangeCandidates::quickest() const {
  double quickest = std::numeric_limits<double>::infinity();
  for (const auto& part : parts_) quickest = std::min(quickest, part->quickest());
  return quickest;
}

bool RangeCandidates::open(double most, size_t entries) {
  bool all = true;
  for (const auto& part : parts_)
    if (!part->open(most, entries)) all = false;
  list();
  return all;
}

void RangeCandidates::time(size_t option) {
  const auto [part, number] = options_[option];
  parts_[part]->time(number);
  list();
}

void RangeCandidates::count_rest(double enough) const {
  for (const auto& part : parts_) part->count_rest(enough);
}

size_t RangeCandidates::timed() const {
  return std::transform_reduce(parts_.begin(), parts_.end(), size_t{0}, std::plus<>(),
                               [](const auto& part) { return part->timed(); });
}

}  // namespace switchyard::planner
