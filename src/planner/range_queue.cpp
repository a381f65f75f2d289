#include "planner/range_queue.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace switchyard::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr i64 kStepsOfAnEntry = 2, kStepsOfATime = 1000;
constexpr i64 kDocumentsOfAStep = 16;  // when they are packed
constexpr int kZeros = 3;              // stages of ZeRO of a placement: 1 to 3

}  // namespace

RangeQueue::RangeQueue(const CostModel& model, std::span<const Shape> shapes, Range range, i64 memory, Counts& counts)
    : model_(model),
      transfers_(model.transfers()),
      shapes_(shapes),
      range_(range),
      memory_(memory),
      room_(memory == 0 ? std::numeric_limits<i64>::max() : memory - model.least_home_bytes()),
      capacities_(capacities(model, range)),
      counts_(counts) {
  const auto uncut = [](Placement placement) {
    placement.zero = 1;
    return placement;
  };
  for (size_t i = 0; i < shapes.size(); ++i) {
    const bool fresh = i == 0 || uncut(shapes[i].placement) != uncut(shapes[i - 1].placement);
    placement_.push_back(i == 0 ? 0 : placement_.back() + (fresh ? kZeros : 0));
    if (fresh) candidates_.resize(candidates_.size() + kZeros);
  }
  // Where all meshes of as many ranks have one bound, they are one entry.
  const bool by_ranks = model.units().shares_rise();
  const auto alike = [by_ranks](const Placement& a, const Placement& b) {
    return a.dp == b.dp && a.pp == b.pp && (by_ranks ? a.stage_ranks() == b.stage_ranks() : a.mesh == b.mesh);
  };
  for (size_t first = 0, end = 0; first < shapes.size(); first = end) {
    while (end < shapes.size() && alike(shapes[end].placement, shapes[first].placement)) ++end;
    entries_.push_back({.value = model.rough_bound(shapes[first].placement, range),
                        .first = static_cast<int>(first),
                        .end = static_cast<int>(end)});
  }
  counts_.candidates += static_cast<i64>(shapes.size() * capacities_.size());
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
  counts_.steps += kStepsOfAnEntry;
  if (entry.known == Known::degrees)
    expand(entry);
  else if (entry.known == Known::plain_layers)
    recompute_layers(entry);
  else if (entry.known == Known::layers)
    pack_layers(entry);
  else if (entry.known == Known::packed_layers)
    separate(entry);
  else if (entry.known == Known::sums)
    pack(entry);
  return entry.known == Known::micro_batches;
}

double RangeQueue::least_of_all() const {
  double least = this->least();
  for (const Option& option : options_) least = std::min(least, option.least());
  return least;
}

void RangeQueue::refine() {
  Entry entry;
  if (!pop(entry)) return;
  if (dominated(entry)) {
    ++counts_.dominated;
    return;
  }
  const double most = std::max(entry.value, least_of_all() - entry.beyond);
  const std::pair key(entry.first, entry.capacity);
  const double seconds = model_.seconds_up_to(most, begun_[key], shape(entry), entry.capacity, range_);
  if (seconds > most) {
    entry.value = seconds;
    return push(entry);
  }
  begun_.erase(key);
  options_.push_back(option_of(entry));
  make_exact(options_.size() - 1, seconds);
}

void RangeQueue::open(double most, const std::function<bool()>& stop) {
  opened_ = std::max(opened_, most);
  while (least() <= most && least() < kNever && !(stop && stop()))
    if (Entry entry; pop(entry)) add(entry);
}

// The placement of the longest documents is also home's, and home takes least memory without copies.
i64 RangeQueue::room_for(const Placement& placement) const {
  return has_longest() && memory_ > 0 ? memory_ - model_.home_bytes({placement}) : room_;
}

void RangeQueue::expand(const Entry& entry) {
  for (int first = entry.first, end = first; first < entry.end; first = end) {
    const Placement& placement = shapes_[static_cast<size_t>(first)].placement;
    std::vector<int> codes;  // a shape of each
    for (; end < entry.end && shapes_[static_cast<size_t>(end)].placement.mesh == placement.mesh; ++end)
      if (std::ranges::none_of(codes, [&](int code) { return alike(shape(code), shape(end)); })) codes.push_back(end);
    if (model_.least_weights(leanest(placement)) > room_) {
      counts_.memory += (end - first) * static_cast<i64>(capacities_.size());
      continue;
    }
    for (const int code : codes) {
      Shape plain = shape(code);
      const Known known = plain.recompute == config::Recompute::none ? Known::layers : Known::plain_layers;
      plain.recompute = config::Recompute::none;
      for (const i64 capacity : capacities_)
        push({.value = std::max(entry.value, model_.layers_bound(plain, capacity, range_)),
              .known = known,
              .first = code,
              .end = end,
              .capacity = capacity,
              .zero = plain.placement.zero});
    }
  }
}

// Code that recomputes takes no less than code that doesn't, and is compiled only where that is not too long.
void RangeQueue::recompute_layers(const Entry& entry) {
  Entry recomputed = entry;
  recomputed.known = Known::layers;
  recomputed.value = std::max(entry.value, model_.layers_bound(shape(entry.first), entry.capacity, range_));
  push(recomputed);
}

std::vector<std::pair<RangeQueue::Layers, double>> RangeQueue::bounds_by_layers(const Entry& entry) const {
  std::vector<std::pair<Layers, double>> bounds;
  std::vector<const Shape*> of;  // one of each layers
  for (int i = entry.first; i < entry.end; ++i) {
    const Shape& shape = this->shape(i);
    const Layers layers = layers_of(shape.placement);
    if (!alike(this->shape(entry.first), shape) ||
        std::ranges::count(bounds, layers, &std::pair<Layers, double>::first) > 0)
      continue;
    bounds.emplace_back(layers, 0);
    of.push_back(&shape);
  }
  const std::vector<double> seconds = model_.packed_layers_bounds(of, entry.capacity, range_);
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i].second = seconds[i];
  return bounds;
}

void RangeQueue::pack_layers(const Entry& entry) {
  Entry packed = entry;
  packed.known = Known::packed_layers;
  auto bounds = bounds_by_layers(entry);
  packed.value = std::max(entry.value, std::ranges::min(bounds, {}, &std::pair<Layers, double>::second).second);
  packed_.emplace(std::pair(entry.first, entry.capacity), std::move(bounds));
  push(packed);
}

void RangeQueue::separate(const Entry& entry) {
  std::vector<std::pair<Layers, double>> bounds =
      std::move(packed_.extract(std::pair(entry.first, entry.capacity)).mapped());
  std::vector<bool> with_sums(bounds.size(), false);
  Entry one = entry;
  one.known = Known::sums;
  for (; one.first < entry.end; ++one.first) {
    const Shape& shape = this->shape(one.first);
    if (!alike(this->shape(entry.first), shape)) continue;
    if (!may_fit(shape, entry.capacity)) {
      ++counts_.memory;
      continue;
    }
    const auto bound = std::ranges::find(bounds, layers_of(shape.placement), &std::pair<Layers, double>::first);
    const auto at = static_cast<size_t>(bound - bounds.begin());
    if (!with_sums[at])
      bound->second = std::max({entry.value, bound->second, model_.bound(shape, entry.capacity, range_)});
    with_sums[at] = true;
    one.value = bound->second;
    push(one);
  }
}

bool RangeQueue::may_fit(Shape shape, i64 capacity) const {
  if (memory_ == 0) return true;
  shape.placement = leanest(shape.placement);
  return model_.least_need(shape, capacity, range_).total() <= room_for(shape.placement);
}

void RangeQueue::pack(const Entry& entry) {
  Entry packed = entry;
  packed.known = Known::micro_batches;
  for (;; ++packed.zero) {
    const Shape shape = this->shape(packed);
    const i64 room = room_for(shape.placement);
    if (memory_ > 0) packed.memory = model_.least_need(shape, entry.capacity, range_).total();
    bool fits = packed.memory <= room;
    if (fits) {
      if (dominated(packed)) {
        ++counts_.dominated;
        return;
      }
      Entry waiting = entry;
      waiting.zero = packed.zero;
      if (set_aside(waiting, packed.memory)) return;
      if (memory_ > 0 && shape.schedule != config::ScheduleKind::one_f_one_b)
        packed.memory = model_.need(shape, entry.capacity, range_).total();
      fits = packed.memory <= room;
    }
    if (fits) break;
    if (!cut_further(shape.placement)) {
      ++counts_.memory;
      return;
    }
  }
  if (alone() && packed.beyond == 0) {
    packed.beyond = transfers_.beyond_one_phase(shape(packed).placement);
    if (packed.beyond > 0) {
      packed.known = Known::sums;
      return push(packed);
    }
  }
  counts_.steps += model_.documents(range_) / kDocumentsOfAStep;
  packed.value = std::max(entry.value, model_.micro_batches_bound(shape(packed), entry.capacity, range_));
  push(packed);
}

Option RangeQueue::option_of(const Entry& entry) const {
  return {.seconds = entry.value,
          .beyond = entry.beyond,
          .memory = entry.memory,
          .shape = shape(entry),
          .capacity = entry.capacity,
          .placement = placement(entry)};
}

bool RangeQueue::dominated(const Entry& candidate) const {
  return std::ranges::any_of(candidates_[static_cast<size_t>(placement(candidate))].timed, [&](size_t i) {
    return options_[i].seconds <= candidate.value && options_[i].memory <= candidate.memory;
  });
}

bool RangeQueue::set_aside(const Entry& candidate, i64 memory) {
  Candidates& others = candidates_of(placement(candidate));
  const bool aside = std::ranges::any_of(
      others.untimed, [&](size_t i) { return options_[i].seconds <= candidate.value && options_[i].memory <= memory; });
  if (aside) others.aside.push_back(candidate);
  return aside;
}

bool RangeQueue::add(const Entry& entry) {
  if (dominated(entry)) {
    ++counts_.dominated;
    return false;
  }
  if (set_aside(entry, entry.memory)) return false;
  candidates_of(placement(entry)).untimed.push_back(options_.size());
  options_.push_back(option_of(entry));
  return true;
}

void RangeQueue::time(size_t index) {
  make_exact(index, model_.seconds(options_[index].shape, options_[index].capacity, range_));
}

void RangeQueue::make_exact(size_t index, double seconds) {
  Option& option = options_[index];
  option.exact = true;
  option.seconds = seconds;
  quickest_ = std::min(quickest_, option.least());
  ++counts_.timed;
  counts_.steps += kStepsOfATime + model_.documents(range_);
  ++times_;
  Candidates& of_placement = candidates_of(option.placement);
  of_placement.timed.push_back(index);
  std::erase(of_placement.untimed, index);
  // Entries that were set aside come back; those that another option still stands for are set aside again.
  for (const Entry& entry : std::exchange(of_placement.aside, {})) push(entry);
  open(opened_);
}

void RangeQueue::count_rest(double enough) const {
  const auto number_of = [&](const Entry& entry) -> i64 {
    if (entry.known == Known::degrees) return (entry.end - entry.first) * static_cast<i64>(capacities_.size());
    if (entry.known >= Known::sums) return 1;
    return std::ranges::count_if(
        shapes_.subspan(static_cast<size_t>(entry.first), static_cast<size_t>(entry.end - entry.first)),
        [&](const Shape& one) { return alike(shape(entry.first), one); });
  };
  const auto count = [&](double least, i64& excluded, i64 number) {
    (least < enough ? counts_.unexamined : excluded) += number;
  };
  for (const Entry& entry : entries_)
    count(entry.least(), entry.known < Known::sums ? counts_.rough : counts_.bound, number_of(entry));
  for (const Candidates& of_placement : candidates_)
    for (const Entry& entry : of_placement.aside) count(entry.least(), counts_.bound, 1);
  for (const Option& option : options_)
    if (!option.exact) count(option.least(), counts_.bound, 1);
}

}  // namespace switchyard::planner
