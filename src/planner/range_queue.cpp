#include "planner/range_queue.hpp"

#include <algorithm>
#include <limits>

namespace switchyard::planner {

RangeQueue::RangeQueue(const CostModel& model, std::span<const Shape> shapes, Range range, i64 memory, Counts& counts)
    : model_(model),
      shapes_(shapes),
      range_(range),
      memory_(memory),
      room_(memory == 0 ? std::numeric_limits<i64>::max() : memory - model.least_home_bytes()),
      capacities_(capacities(model, range)),
      counts_(counts) {
  for (size_t first = 0, end = 0; first < shapes.size(); first = end) {
    const Placement& placement = shapes[first].placement;
    while (end < shapes.size() && shapes[end].placement == placement) ++end;
    push({model.rough_bound(placement, range), static_cast<int>(first), static_cast<int>(end - first), 0, 0});
    counts_.candidates += static_cast<i64>((end - first) * capacities_.size());
  }
}

void RangeQueue::push(const Entry& entry) {
  entries_.push_back(entry);
  std::ranges::push_heap(entries_, std::greater<>());
}

double RangeQueue::least_with(const std::function<double(const Placement&)>& extra) const {
  double least = std::numeric_limits<double>::infinity();
  for (const Timed& timed : timed_)
    if (timed.seconds < least) least = std::min(least, timed.seconds + extra(timed.shape.placement));
  for (const Entry& entry : entries_)
    if (entry.value < least) least = std::min(least, entry.value + extra(placement_of(entry)));
  return least;
}

void RangeQueue::refine() {
  const Entry entry = entries_.front();
  std::ranges::pop_heap(entries_, std::greater<>());
  entries_.pop_back();
  if (entry.count > 0)
    expand(entry);
  else
    time(entry);
}

// The longest documents' placement is home's, too.
i64 RangeQueue::room_for(const Placement& placement) const {
  const bool home = range_.hi == static_cast<int>(model_.bounds().size());
  return home && memory_ > 0 ? memory_ - model_.home_bytes(placement) : room_;
}

void RangeQueue::expand(const Entry& entry) {
  const Placement& placement = placement_of(entry);
  const i64 room = room_for(placement);
  for (int shape = entry.first; shape < entry.first + entry.count; ++shape)
    for (const i64 capacity : capacities_) {
      const Shape& what = shapes_[static_cast<size_t>(shape)];
      const i64 memory = memory_ == 0 ? 0 : model_.least_need(what, capacity, range_).total();
      if (memory > room) {
        ++counts_.memory;
        continue;
      }
      push({std::max(entry.value, model_.bound(what, capacity, range_)), shape, 0, capacity, memory});
    }
}

bool RangeQueue::dominated(const Entry& candidate) const {
  const auto known = of_placement_.find(placement_of(candidate));
  if (known == of_placement_.end()) return false;
  return std::ranges::any_of(known->second, [&](size_t i) { return timed_[i].seconds <= candidate.value && timed_[i].memory <= candidate.memory; });
}

void RangeQueue::time(const Entry& entry) {
  if (dominated(entry)) {
    ++counts_.dominated;
    return;
  }
  const Shape& shape = shapes_[static_cast<size_t>(entry.first)];
  const i64 memory = memory_ == 0 ? 0 : model_.need(shape, entry.capacity, range_).total();
  if (memory > room_for(shape.placement)) {
    ++counts_.memory;
    return;
  }
  ++counts_.timed;
  of_placement_[shape.placement].push_back(timed_.size());
  timed_.push_back({model_.seconds(shape, entry.capacity, range_), memory, shape, entry.capacity});
  quickest_ = std::min(quickest_, timed_.back().seconds);
}

void RangeQueue::count_rest() const {
  for (const Entry& entry : entries_) {
    if (entry.count > 0)
      counts_.rough += entry.count * static_cast<i64>(capacities_.size());
    else
      ++counts_.bound;
  }
}

}  // namespace switchyard::planner
