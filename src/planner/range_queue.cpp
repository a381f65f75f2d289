#include "planner/range_queue.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace switchyard::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr i64 kStepsOfAnEntry = 2, kStepsOfATime = 1000;
constexpr i64 kDocumentsOfAStep = 16;  // when they are packed

}  // namespace

RangeQueue::RangeQueue(const CostModel& model, const ShapeIndex& shapes, MemoryRoom& room, Range range, Counts& counts,
                       Part part)
    : model_(model),
      transfers_(model.transfers()),
      shapes_(shapes),
      room_(room),
      range_(range),
      capacities_(capacities(model, range)),
      counts_(counts) {
  for (int group = part.number; std::cmp_less(group, shapes.degrees().size()); group += part.of) {
    const ShapeIndex::Span of = shapes.degrees(group).shapes;
    entries_.push_back(
        {.value = model.rough_bound(shapes.shape(of.begin).placement, range), .first = of.begin, .group = group});
    counts_.candidates += of.size() * static_cast<i64>(capacities_.size());
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
  counts_.steps += kStepsOfAnEntry;
  if (entry.known == Known::degrees)
    expand(entry);
  else if (entry.known == Known::plain)
    pack_plain(entry);
  else if (entry.known == Known::packed_plain)
    complete(entry);
  else if (entry.known == Known::layers)
    pack_layers(entry);
  else if (entry.known == Known::packed_layers)
    separate(entry);
  else if (entry.known == Known::candidate)
    pack(entry);
  return entry.known == Known::micro_batches;
}

double RangeQueue::least_of_options() const {
  double least = kNever;
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

bool RangeQueue::open(double most, size_t entries) {
  opened_ = std::max(opened_, most);
  const auto left = [&] { return least() <= most && least() < kNever; };
  for (; left() && entries > 0; --entries)
    if (Entry entry; pop(entry)) add(entry);
  return !left();
}

void RangeQueue::expand(const Entry& entry) {
  const ShapeIndex::Span meshes = shapes_.degrees(entry.group).meshes;
  for (int m = meshes.begin; m < meshes.end; ++m) {
    const ShapeIndex::Mesh& mesh = shapes_.mesh(m);
    if (model_.least_weights(leanest(shapes_.shape(mesh.shapes.begin).placement), range_) > room_.most()) {
      counts_.memory += mesh.shapes.size() * static_cast<i64>(capacities_.size());
      continue;
    }
    for (int family = mesh.families.begin; family < mesh.families.end; ++family) {
      const int first = shapes_.family(family).layers.front();
      const Shape plain = this->plain(first);
      for (const i64 capacity : capacities_)
        push({.value = std::max(entry.value, model_.layers_bound(plain, capacity, range_, false)),
              .known = Known::plain,
              .first = first,
              .group = family,
              .capacity = capacity});
    }
  }
}

// Code that recomputes takes no less than code that doesn't.
Shape RangeQueue::plain(int number) const {
  Shape plain = shapes_.shape(number);
  plain.recompute = least_recompute(plain.placement.mesh);
  plain.placement.zero = 1;
  return plain;
}

void RangeQueue::push_packed(Entry entry, Known known, std::vector<double> bounds, PackedBounds& into) {
  entry.known = known;
  entry.value = std::max(entry.value, std::ranges::min(bounds));
  into.emplace(std::pair(entry.group, entry.capacity), std::move(bounds));
  push(entry);
}

void RangeQueue::pack_plain(const Entry& entry) {
  std::vector<const Shape*> layers;
  for (const int shape : shapes_.family(entry.group).layers) layers.push_back(&shapes_.shape(shape));
  std::vector<double> bounds = model_.packed_layers_bounds(plain(entry.first), layers, entry.capacity, range_, false);
  push_packed(entry, Known::packed_plain, std::move(bounds), packed_plain_);
}

// Code that recomputes is compiled only where the time without that is not too long; nor is it known before what runs
// transfer.
void RangeQueue::complete(const Entry& entry) {
  const std::vector<double> bounds = std::move(packed_plain_.extract(std::pair(entry.group, entry.capacity)).mapped());
  const ShapeIndex::Span codes = shapes_.family(entry.group).codes;
  for (int number = codes.begin; number < codes.end; ++number) {
    const ShapeIndex::Code& code = shapes_.code(number);
    const Shape& first = shapes_.shape(code.members.front().shape);
    double packed = kNever;
    for (const ShapeIndex::Layers& layers : code.layers)
      packed = std::min(packed, bounds[static_cast<size_t>(layers.of_family)]);
    push({.value = std::max({entry.value, packed, model_.layers_bound(first, entry.capacity, range_)}),
          .known = Known::layers,
          .first = code.members.front().shape,
          .group = number,
          .capacity = entry.capacity,
          .zero = first.placement.zero});
  }
}

void RangeQueue::pack_layers(const Entry& entry) {
  if (entry.capacity > room_.largest_capacity(entry.group, range_)) {
    counts_.memory += static_cast<i64>(shapes_.code(entry.group).members.size());
    return;
  }
  std::vector<const Shape*> layers;
  for (const ShapeIndex::Layers& one : shapes_.code(entry.group).layers) layers.push_back(&shapes_.shape(one.shape));
  std::vector<double> bounds = model_.packed_layers_bounds(shape(entry), layers, entry.capacity, range_);
  push_packed(entry, Known::packed_layers, std::move(bounds), packed_);
}

void RangeQueue::separate(const Entry& entry) {
  const ShapeIndex::Code& code = shapes_.code(entry.group);
  std::vector<double> bounds = std::move(packed_.extract(std::pair(entry.group, entry.capacity)).mapped());
  Entry one = entry;
  one.known = Known::candidate;
  for (const ShapeIndex::Member& member : code.members) {
    const Shape& shape = shapes_.shape(member.shape);
    if (!may_fit(shape, entry.capacity)) {
      ++counts_.memory;
      continue;
    }
    one.value = std::max(entry.value, bounds[static_cast<size_t>(member.layers)]);
    one.first = member.shape;
    push(one);
  }
}

bool RangeQueue::may_fit(Shape shape, i64 capacity) const {
  if (!room_.limited()) return true;
  shape.placement = leanest(shape.placement);
  return model_.least_need(shape, capacity, range_).total() <= room_.bytes(shape.placement, range_);
}

void RangeQueue::pack(const Entry& entry) {
  Entry packed = entry;
  packed.known = Known::micro_batches;
  for (;; ++packed.zero) {
    const Shape shape = this->shape(packed);
    const i64 room = room_.bytes(shape.placement, range_);
    if (room_.limited()) packed.memory = model_.least_need(shape, entry.capacity, range_).total();
    bool fits = packed.memory <= room;
    if (fits) {
      if (dominated(packed)) {
        ++counts_.dominated;
        return;
      }
      Entry waiting = entry;
      waiting.zero = packed.zero;
      if (set_aside(waiting, packed.memory)) return;
      if (room_.limited() && shape.schedule != config::ScheduleKind::one_f_one_b)
        packed.memory = model_.need(shape, entry.capacity, range_).total();
      fits = packed.memory <= room;
    }
    if (fits) break;
    if (!cut_further(shape.placement)) {
      ++counts_.memory;
      return;
    }
  }
  if (packed.beyond == 0) {
    const Placement placement = shape(packed).placement;
    packed.beyond = alone() ? transfers_.beyond_one_phase(placement, model_.last_backward(placement, range_))
                            : transfers_.beyond_phase(placement, has_longest());
    if (packed.beyond > 0) {
      packed.known = Known::candidate;
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
          .last_backward = model_.last_backward(shape(entry).placement, range_),
          .memory = entry.memory,
          .shape = shape(entry),
          .capacity = entry.capacity,
          .placement = placement(entry)};
}

bool RangeQueue::dominated(const Entry& candidate) const {
  const auto known = candidates_.find(placement(candidate));
  return known != candidates_.end() && std::ranges::any_of(known->second.timed, [&](size_t i) {
           return options_[i].seconds <= candidate.value && options_[i].memory <= candidate.memory;
         });
}

bool RangeQueue::set_aside(const Entry& candidate, i64 memory) {
  Candidates& others = candidates_[placement(candidate)];
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
  candidates_[placement(entry)].untimed.push_back(options_.size());
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
  Candidates& of_placement = candidates_[option.placement];
  of_placement.timed.push_back(index);
  std::erase(of_placement.untimed, index);
  // Entries that were set aside come back; those that another option still stands for are set aside again.
  for (const Entry& entry : std::exchange(of_placement.aside, {})) push(entry);
  open(opened_);
}

void RangeQueue::count_rest(double enough) const {
  const auto number_of = [&](const Entry& entry) -> i64 {
    if (entry.known == Known::degrees)
      return shapes_.degrees(entry.group).shapes.size() * static_cast<i64>(capacities_.size());
    if (entry.known >= Known::candidate) return 1;
    if (entry.known >= Known::layers) return static_cast<i64>(shapes_.code(entry.group).members.size());
    i64 number = 0;
    const ShapeIndex::Span codes = shapes_.family(entry.group).codes;
    for (int code = codes.begin; code < codes.end; ++code) number += std::ssize(shapes_.code(code).members);
    return number;
  };
  const auto count = [&](double least, i64& excluded, i64 number) {
    (least < enough ? counts_.unexamined : excluded) += number;
  };
  for (const Entry& entry : entries_)
    count(entry.least(), entry.known < Known::candidate ? counts_.rough : counts_.bound, number_of(entry));
  for (const auto& [placement, of_placement] : candidates_)
    for (const Entry& entry : of_placement.aside) count(entry.least(), counts_.bound, 1);
  for (const Option& option : options_)
    if (!option.exact) count(option.least(), counts_.bound, 1);
}

}  // namespace switchyard::planner
