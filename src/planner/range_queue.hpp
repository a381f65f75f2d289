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

/// A candidate. exact: its time is known; otherwise it is not less.
struct Option {
  double seconds = 0;
  i64 memory = 0;  // bytes of a rank besides home
  Shape shape;
  i64 capacity = 0;
  int placement = 0;  // numbered in the order of shapes
  bool exact = false;
};

/// Entries wait in order of what is known not to be above their time: first all candidates of a placement's degrees,
/// then those of a recomputation and capacity by sums over the documents for their layers, then each one for all it is,
/// then by packed micro-batches.
class RangeQueue {
 public:
  /// shapes: of equal placement one after the other; they outlive the queue. memory: bytes of a rank, 0 for no limit.
  RangeQueue(const CostModel& model, std::span<const Shape> shapes, Range range, i64 memory, Counts& counts);

  /// No candidate that still waits takes less. Infinite when none does.
  double least() const { return entries_.empty() ? std::numeric_limits<double>::infinity() : entries_.front().value; }
  /// No candidate takes less.
  double least_of_all() const;
  /// Looks closer at the entry with the least value: a placement turns into its candidates, a candidate into an exact
  /// option, or where it turns out to take longer than another may, into an entry of a higher value.
  void refine();
  /// All that may take `most` seconds or less become options, by their bounds; until `stop` says so, if there is one.
  /// Those for which another option of the placement has a bound that is no higher, and takes no more memory, are set
  /// aside: they aren't the placement's quickest before that one is timed.
  void open(double most, const std::function<bool()>& stop = {});
  const std::vector<Option>& options() const { return options_; }
  /// Makes an option exact. Those set aside for it may become options.
  void time(size_t option);
  /// Adds what never was timed to the counts.
  void count_rest() const;
  /// How often that was done.
  size_t timed() const { return times_; }
  /// Numbers of placements are less.
  int placements() const { return static_cast<int>(candidates_.size()); }

 private:
  enum class Known { degrees, layers, sums, micro_batches };
  /// degrees, layers: candidates among the shapes first ... end - 1; sums, micro-batches: the candidate of shape
  /// `first`.
  struct Entry {
    double value = 0;
    Known known = Known::degrees;
    config::Recompute recompute = config::Recompute::none;
    int first = 0, end = 0;
    i64 capacity = 0, memory = 0;
    bool operator>(const Entry& other) const {
      return std::tie(value, first, capacity, recompute) >
             std::tie(other.value, other.first, other.capacity, other.recompute);
    }
  };
  /// Of a placement: the options (their places in options_) whose time is known, the others, and what waits until one
  /// of these is timed.
  struct Candidates {
    std::vector<size_t> timed{}, untimed{};
    std::vector<Entry> aside{};
  };
  void push(const Entry& entry);
  /// Takes the entry with the least value, and looks closer at it. Whether it is a candidate that can be looked at no
  /// closer.
  bool pop(Entry& entry);
  const Shape& shape(const Entry& entry) const { return shapes_[static_cast<size_t>(entry.first)]; }
  Candidates& candidates_of(int placement) { return candidates_[static_cast<size_t>(placement)]; }
  int placement(const Entry& entry) const { return placement_[static_cast<size_t>(entry.first)]; }
  i64 room_for(const Placement& placement) const;
  void expand(const Entry& degrees);
  void separate(const Entry& layers);
  /// Nothing if it doesn't fit, or is dominated.
  void pack(const Entry& candidate);
  /// Unless it is dominated.
  bool add(const Entry& candidate);
  void make_exact(size_t option, double seconds);
  bool dominated(const Entry& candidate) const;
  /// Whether an option whose time isn't known stands for the candidate, which takes so much memory at least: then it is
  /// set aside.
  bool set_aside(const Entry& candidate, i64 memory);

  const CostModel& model_;
  std::span<const Shape> shapes_;
  Range range_;
  i64 memory_, room_;
  std::vector<i64> capacities_;
  Counts& counts_;
  std::vector<int> placement_;  // its number, of each shape
  std::vector<Entry> entries_;  // a heap, the least in front
  std::vector<Option> options_;
  size_t times_ = 0;
  double opened_ = 0;                   // the most that open() was asked for
  std::vector<Candidates> candidates_;  // of each placement
  std::map<std::pair<int, i64>, CostModel::ReplicaTimes>
      begun_;  // by shape and capacity: candidates whose time is known in part
};

}  // namespace switchyard::planner
