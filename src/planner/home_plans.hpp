// The quickest plans with home on one placement.
#pragma once

#include <memory>
#include <vector>

#include "planner/range_queue.hpp"

namespace switchyard::planner {

/// What a plan's phases add, from its placements and the times of its pipelines.
PhaseTimes times_of(const CostModel& model, const Transfers& transfers, const std::optional<Placement>& previous, const Placement& next,
                    const Placement& home, double work);

/// The candidates of all ranges of lengths; those of a range without documents are missing.
struct Ranges {
  int levels = 0;
  std::vector<std::unique_ptr<RangeQueue>> queues;  // by slot

  size_t slots() const { return static_cast<size_t>((levels + 1) * (levels + 1)); }
  size_t slot(Range range) const { return static_cast<size_t>(range.lo * (levels + 1) + range.hi); }
  RangeQueue* queue(Range range) const { return queues[slot(range)].get(); }
};

/// A phase as an option of its range.
struct Step {
  Range range;
  size_t option = 0;
};

/// Phases in the order in which they run; no less than `seconds` where an option isn't exact.
struct Draft {
  std::vector<Step> steps;
  double seconds = 0;
};

class HomePlans {
 public:
  HomePlans(const CostModel& model, const Transfers& transfers, const Ranges& ranges, const SearchSettings& settings)
      : model_(model), transfers_(transfers), ranges_(ranges), settings_(settings) {}

  /// From now on plans consist of the options that the ranges have now. others: of each range (by slot), what all else takes at least.
  void open(std::vector<double> others);
  /// The best plans of at most `limit` seconds that begin with an option of the longest documents, home on its placement; of each
  /// placement the quickest option that fits beside home is taken. Nothing where there are none, or the search is to stop.
  std::vector<Draft> best(const Step& first, double limit);
  /// No plan that begins so takes less, where all after it takes at least `rest`.
  double least(const Step& first, double rest) const;
  /// What it takes, whether its options are exact or not.
  double seconds(const Draft& draft) const;

 private:
  /// A plan in the making: the longest bucket, and those from the shortest up to a level.
  struct Label {
    Timeline timeline;
    Step last;
    int before = -1;  // in labels_
    int buckets = 0;
  };
  const Option& option(const Step& step) const { return ranges_.queue(step.range)->options()[step.option]; }
  PhaseTimes times(const std::optional<Placement>& previous, const Option& next, const Placement& home) const;
  const Placement& placement(const Label& label) const { return option(label.last).shape.placement; }
  const std::vector<size_t>& sorted(Range range);
  void choose_options();
  void bound_rests();
  void bound_starts();
  void extend(int level, int next);
  void extend(int label, const Step& step, int next);
  bool dominated(const Timeline& timeline, int buckets, const std::vector<int>& labels) const;
  void finish(int label);

  const CostModel& model_;
  const Transfers& transfers_;
  const Ranges& ranges_;
  const SearchSettings& settings_;
  // By slot: options, the quickest first, and how many of the range were timed when they were sorted.
  std::vector<std::vector<size_t>> sorted_;
  std::vector<size_t> timed_;
  std::vector<double> others_;
  // Of the plans in the making.
  Placement home_;
  int end_ = 0;
  i64 room_ = 0;
  double limit_ = 0, finish_ = 0;
  bool stopped_ = false;
  std::vector<std::vector<size_t>> options_;  // by slot, the quickest first
  std::vector<double> rest_, start_;          // of each level: what the rest, the beginning takes at least
  std::vector<Label> labels_;
  std::vector<std::vector<std::vector<int>>> at_;  // labels of each level, by the last one's placement
  std::vector<Draft> found_;
};

}  // namespace switchyard::planner
