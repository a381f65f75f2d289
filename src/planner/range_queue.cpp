#include "planner/range_queue.hpp"

#include <algorithm>
#include <limits>

namespace switchyard::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

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
    entries_.push_back({model.rough_bound(placement, range), static_cast<int>(first), static_cast<int>(end - first), placements(), Known::layers, 0, 0});
    timed_.emplace_back();
    counts_.candidates += static_cast<i64>((end - first) * capacities_.size());
  }
  std::ranges::make_heap(entries_, std::greater<>());
}

void RangeQueue::push(const Entry& entry) {
  entries_.push_back(entry);
  std::ranges::push_heap(entries_, std::greater<>());
}

bool RangeQueue::pop(Entry& entry) {
  entry = entries_.front();
  std::ranges::pop_heap(entries_, std::greater<>());
  entries_.pop_back();
  if (entry.count > 0)
    expand(entry);
  else if (entry.known == Known::layers)
    bound(entry);
  else if (entry.known == Known::sums)
    pack(entry);
  return entry.count == 0 && entry.known == Known::rows;
}

double RangeQueue::least_of_all() const {
  double least = this->least();
  for (const Option& option : options_) least = std::min(least, option.seconds);
  return least;
}

void RangeQueue::refine() {
  if (Entry entry; pop(entry) && add(entry)) time(options_.size() - 1);
}

void RangeQueue::open(double most) {
  while (least() <= most && least() < kNever)
    if (Entry entry; pop(entry)) add(entry);
}

// The longest documents' placement is home's, too.
i64 RangeQueue::room_for(const Placement& placement) const {
  const bool home = range_.hi == static_cast<int>(model_.bounds().size());
  return home && memory_ > 0 ? memory_ - model_.home_bytes(placement) : room_;
}

void RangeQueue::expand(const Entry& entry) {
  for (int shape = entry.first; shape < entry.first + entry.count; ++shape)
    for (const i64 capacity : capacities_) {
      const double value = model_.layers_bound(shapes_[static_cast<size_t>(shape)], capacity, range_);
      push({std::max(entry.value, value), shape, 0, entry.placement, Known::layers, capacity, 0});
    }
}

void RangeQueue::bound(const Entry& entry) {
  const Shape& shape = shapes_[static_cast<size_t>(entry.first)];
  const i64 memory = memory_ == 0 ? 0 : model_.least_need(shape, entry.capacity, range_).total();
  if (memory > room_for(shape.placement)) {
    ++counts_.memory;
    return;
  }
  push({std::max(entry.value, model_.bound(shape, entry.capacity, range_)), entry.first, 0, entry.placement, Known::sums, entry.capacity, memory});
}

void RangeQueue::pack(const Entry& entry) {
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
  push({std::max(entry.value, model_.rows_bound(shape, entry.capacity, range_)), entry.first, 0, entry.placement, Known::rows, entry.capacity, memory});
}

bool RangeQueue::dominated(const Entry& candidate) const {
  return std::ranges::any_of(timed_[static_cast<size_t>(candidate.placement)], [&](size_t i) {
    return options_[i].seconds <= candidate.value && options_[i].memory <= candidate.memory;
  });
}

bool RangeQueue::add(const Entry& entry) {
  if (dominated(entry)) {
    ++counts_.dominated;
    return false;
  }
  options_.push_back({entry.value, entry.memory, shapes_[static_cast<size_t>(entry.first)], entry.capacity, entry.placement, false});
  return true;
}

void RangeQueue::time(size_t index) {
  Option& option = options_[index];
  option.exact = true;
  ++counts_.timed;
  ++times_;
  option.seconds = model_.seconds(option.shape, option.capacity, range_);
  timed_[static_cast<size_t>(option.placement)].push_back(index);
}

void RangeQueue::count_rest() const {
  for (const Entry& entry : entries_) {
    if (entry.count > 0)
      counts_.rough += entry.count * static_cast<i64>(capacities_.size());
    else
      ++counts_.bound;
  }
  counts_.bound += std::ranges::count(options_, false, &Option::exact);
}

}  // namespace switchyard::planner
