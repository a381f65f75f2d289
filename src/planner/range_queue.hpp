// The candidates of one range of lengths, looked at no closer than needed to know which is the quickest.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "planner/search.hpp"

namespace switchyard::planner {

/// A candidate whose time is known.
struct Timed {
  double seconds = 0;
  i64 memory = 0;  // bytes of a rank besides home
  Shape shape;
  i64 capacity = 0;
};

/// Entries wait in order of what is known not to be above their time: first whole placements, then their candidates, then times.
class RangeQueue {
 public:
  /// shapes: of equal placement one after the other; they outlive the queue. memory: bytes of a rank, 0 for no limit.
  RangeQueue(const CostModel& model, std::span<const Shape> shapes, Range range, i64 memory, Counts& counts);

  /// No candidate that isn't in timed() takes less. Infinite when all are.
  double least() const { return entries_.empty() ? std::numeric_limits<double>::infinity() : entries_.front().value; }
  /// No candidate takes less.
  double least_of_all() const { return std::min(least(), timed_.empty() ? std::numeric_limits<double>::infinity() : quickest_); }
  /// No candidate takes less with what `extra` says of its placement, never negative.
  double least_with(const std::function<double(const Placement&)>& extra) const;
  /// Looks closer at the entry with the least value.
  void refine();
  const std::vector<Timed>& timed() const { return timed_; }
  /// Adds what still waits to the counts.
  void count_rest() const;

 private:
  struct Entry {
    double value = 0;
    int first = 0, count = 0;  // shapes; count 0: the candidate of shape `first`
    i64 capacity = 0, memory = 0;
    bool operator>(const Entry& other) const { return std::tie(value, first, capacity) > std::tie(other.value, other.first, other.capacity); }
  };
  void push(const Entry& entry);
  const Placement& placement_of(const Entry& entry) const { return shapes_[static_cast<size_t>(entry.first)].placement; }
  i64 room_for(const Placement& placement) const;
  void expand(const Entry& placement);
  void time(const Entry& candidate);
  bool dominated(const Entry& candidate) const;

  const CostModel& model_;
  std::span<const Shape> shapes_;
  Range range_;
  i64 memory_, room_;
  std::vector<i64> capacities_;
  Counts& counts_;
  std::vector<Entry> entries_;  // a heap, the least in front
  std::vector<Timed> timed_;
  std::map<Placement, std::vector<size_t>> of_placement_;  // in timed_
  double quickest_ = std::numeric_limits<double>::infinity();
};

}  // namespace switchyard::planner
