// The candidates of one range of lengths, evaluated only as closely as needed to find the fastest.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/memory_room.hpp"
#include "planner/search.hpp"
#include "planner/shape_index.hpp"

namespace switchyard::planner {

/// A candidate. exact: `seconds` is its time; otherwise a lower bound on it. beyond: seconds that a plan with it takes
/// at least besides the times of its phases and the least of any update. last_backward: as CostModel has it.
struct Option {
  double seconds = 0, beyond = 0, last_backward = 0;
  i64 memory = 0;  // bytes of a rank without home
  Shape shape;
  i64 capacity = 0;
  int placement = 0;  // its number in ShapeIndex
  bool exact = false;

  double least() const { return seconds + beyond; }
};

/// A share of the candidates of a range: those whose degrees have numbers (in the index) that leave the remainder
/// `number` when divided by `of`.
struct Part {
  int number = 0, of = 1;
};

/// A priority queue of entries by lower bounds on their time. An entry is first all candidates with the same dp, pp and
/// ranks of a stage; then those of one mesh, family of codes and capacity (bound for their layers without recomputation
/// and transfers, from sums over the documents, then from packed micro-batches); then those of one code (the same with
/// recomputation and transfers); then a single candidate (bound from its layers, then from its order and schedule,
/// too).
class RangeQueue {
 public:
  /// Shapes and room outlive the queue; queues of one thread may share the room.
  RangeQueue(const CostModel& model, const ShapeIndex& shapes, MemoryRoom& room, Range range, Counts& counts,
             Part part = {});

  // A plan with a candidate for all documents has no other phase: here and in open(), its time is with what moves
  // before and after it.
  /// Lower bound on the time of all queued candidates; infinite if there are none.
  double least() const { return entries_.empty() ? std::numeric_limits<double>::infinity() : entries_.front().least(); }
  /// The same of all options, and of both.
  double least_of_options() const;
  double least_of_all() const { return std::min(least(), least_of_options()); }
  /// Time of the quickest candidate whose time is known; infinite if none is.
  double quickest() const { return quickest_; }
  /// Evaluates the entry with the lowest bound more closely: a placement is replaced by its candidates, a candidate
  /// becomes an exact option, or an entry with a higher bound if another one may be faster.
  void refine();
  /// Turns all candidates with bounds up to `most` seconds into options, but looks at no more than so many entries;
  /// returns whether that was enough. A candidate is set aside if another option of its placement has a bound that is
  /// no higher and takes no more memory: it can't be the placement's fastest before that option is timed.
  bool open(double most, size_t entries = std::numeric_limits<size_t>::max());
  const std::vector<Option>& options() const { return options_; }
  /// Makes an option exact. Candidates set aside for it may become options.
  void time(size_t option);
  /// Adds the candidates that were never timed to the counts: those whose bound is below `enough` seconds as
  /// unexamined, the others as excluded by it.
  void count_rest(double enough = 0) const;
  /// Number of options that were made exact.
  size_t timed() const { return times_; }

 private:
  enum class Known { degrees, plain, packed_plain, layers, packed_layers, candidate, micro_batches };
  /// degrees, ...plain, ...layers: the candidates of the index' degrees, family or code `group`, of which `first` is
  /// the first shape; candidate, micro_batches: the candidate of shape `first`. zero: of the candidate, or what its
  /// shape has.
  struct Entry {
    double value = 0, beyond = 0;
    Known known = Known::degrees;
    int first = 0, group = 0;
    i64 capacity = 0, memory = 0;
    int zero = 1;
    double least() const { return value + beyond; }
    bool operator>(const Entry& other) const {
      return std::tuple(least(), first, capacity) > std::tuple(other.least(), other.first, other.capacity);
    }
  };
  /// The candidates of a placement: the options (their places in options_) whose time is known, the others, and the
  /// entries that wait until one of the latter is timed.
  struct Candidates {
    std::vector<size_t> timed{}, untimed{};
    std::vector<Entry> aside{};
  };
  void push(const Entry& entry);
  /// Removes the entry with the lowest bound and evaluates it more closely. Returns whether it is a candidate that
  /// can't be evaluated more closely without timing.
  bool pop(Entry& entry);
  /// The shape without recomputation and, but for replicas of its mesh, transfers.
  Shape plain(int shape) const;
  Shape shape(const Entry& entry) const {
    Shape shape = shapes_.shape(entry.first);
    shape.placement.zero = entry.zero;
    return shape;
  }
  int placement(const Entry& entry) const { return shapes_.placement(entry.first, entry.zero); }
  bool has_longest() const { return range_.hi == static_cast<int>(model_.bounds().size()); }
  /// Whether a plan with a candidate has no other phase.
  bool alone() const { return range_.lo == 0 && has_longest(); }
  void expand(const Entry& degrees);
  /// By family or code, and capacity: bounds of entries whose layers are packed, one for each way to lay them out.
  using PackedBounds = std::map<std::pair<int, i64>, std::vector<double>>;
  void push_packed(Entry entry, Known known, std::vector<double> bounds, PackedBounds& into);
  void pack_plain(const Entry& plain);
  void complete(const Entry& plain);
  void pack_layers(const Entry& layers);
  void separate(const Entry& layers);
  /// Whether the shape may fit beside a home, cut as far as possible.
  bool may_fit(Shape shape, i64 capacity) const;
  /// Queues the candidate with the bound of its packed micro-batches, unless it is dominated, or first with what moves
  /// around it. One that doesn't fit is cut further (ZeRO-2, 3) until it does; if it can't be, it is left out.
  void pack(const Entry& candidate);
  /// Adds the candidate as an option, unless it is dominated.
  bool add(const Entry& candidate);
  void make_exact(size_t option, double seconds);
  Option option_of(const Entry& candidate) const;
  bool dominated(const Entry& candidate) const;
  /// Sets the candidate, which takes at least `memory` bytes, aside if an option that is not yet timed stands for it;
  /// returns whether it did.
  bool set_aside(const Entry& candidate, i64 memory);

  const CostModel& model_;
  const Transfers& transfers_;
  const ShapeIndex& shapes_;
  MemoryRoom& room_;
  Range range_;
  std::vector<i64> capacities_;
  Counts& counts_;
  std::vector<Entry> entries_;  // a heap, lowest bound in front
  std::vector<Option> options_;
  size_t times_ = 0;
  double quickest_ = std::numeric_limits<double>::infinity();
  double opened_ = 0;                               // the most that open() was asked for
  std::unordered_map<int, Candidates> candidates_;  // by placement
  PackedBounds packed_plain_, packed_;
  // By shape and capacity: candidates whose time is known in part.
  std::map<std::pair<int, i64>, CostModel::ReplicaTimes> begun_;
};

}  // namespace switchyard::planner
