// The quickest plans with one home.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/range_candidates.hpp"

namespace switchyard::planner {

/// The candidates of all ranges of lengths; those of a range without documents are missing.
struct Ranges {
  int levels = 0;
  std::vector<std::unique_ptr<RangeCandidates>> candidates;  // by slot

  size_t slots() const { return static_cast<size_t>((levels + 1) * (levels + 1)); }
  size_t slot(Range range) const { return static_cast<size_t>(range.lo * (levels + 1) + range.hi); }
  RangeCandidates* of(Range range) const { return candidates[slot(range)].get(); }
};

/// A phase as an option of its range.
struct Step {
  Range range;
  size_t option = 0;
};

/// Phases in the order in which they run; no less than `seconds` where an option isn't exact.
struct Draft {
  std::vector<Step> steps;
  int zero = 1;  // home's
  double seconds = 0;
};

class HomePlans {
 public:
  /// settings: memory and most_buckets. stop: whether the search is to end.
  HomePlans(const CostModel& model, const Ranges& ranges, const SearchSettings& settings, std::function<bool()> stop,
            Counts& counts)
      : model_(model),
        transfers_(model.transfers()),
        ranges_(ranges),
        settings_(settings),
        stop_(std::move(stop)),
        counts_(counts) {}

  /// From now on plans consist of the options that the ranges have now. others: of each range (by slot), what all else
  /// takes at least.
  void open(std::vector<double> others);
  /// The best plan of at most `limit` seconds, and a few others, that have an option of the longest documents, home on
  /// its placement; of each placement the quickest option that fits beside home is taken, and of each plan the best
  /// order. Nothing where there are none, or the search is to stop.
  std::vector<Draft> best(const Step& longest, int zero, double limit);
  /// No plan that has the option and home there takes less, where all else takes at least `rest`.
  double least(const Step& longest, int zero, double rest) const;
  /// Seconds that the plan takes, whether its options are exact or not.
  double seconds(const Draft& draft) const;
  /// How many plans in the making were kept so far: the work that best() has done.
  size_t made() const { return made_; }

 private:
  /// Ranges between neighbouring bounds, a bit for each; those of home's bucket share one.
  using Levels = unsigned;
  /// A plan in the making: some of its phases, in the order in which they run.
  struct Label {
    Timeline timeline;
    Step last;
    int before = -1;  // in labels_
    int buckets = 0;
    std::uint64_t plan = 0;  // the same in any order of the same phases
  };
  const Option& option(const Step& step) const { return ranges_.of(step.range)->option(step.option); }
  PhaseTimes times(const std::optional<Placement>& previous, const Option& next, const Home& home) const;
  /// Seconds that a phase adds to a plan at least.
  double least(const Step& step) const;
  static double after_computing(const Option& option, double reduce);
  /// The part of a label that affects what follows.
  struct Mark {
    Timeline timeline;
    int buckets = 0;
  };
  using Marks = std::vector<Mark>;
  Levels levels(Range range) const;
  const std::vector<size_t>& sorted(Range range);
  void choose_options();
  void bound_rests();
  void extend(Levels done);
  void extend(const std::vector<int>& labels, Levels next, const Step& step);
  bool dominated(const Mark& mark, const Marks& others) const;
  std::vector<Draft> finished() const;

  const CostModel& model_;
  const Transfers& transfers_;
  const Ranges& ranges_;
  const SearchSettings& settings_;
  std::function<bool()> stop_;
  Counts& counts_;
  // By slot: options, the quickest first, and how many of the range were timed when they were sorted.
  std::vector<std::vector<size_t>> sorted_;
  std::vector<size_t> timed_;
  std::vector<double> others_;
  // The state of best(), which makes plans for one home.
  Home home_;
  int end_ = 0;  // end of the ranges below home's bucket
  Levels all_ = 0;
  double limit_ = 0, finish_ = 0;
  i64 room_ = 0;
  bool stopped_ = false;
  std::vector<Range> open_;  // ranges that a plan may have
  std::vector<std::vector<size_t>>
      options_;                      // by slot: of each placement the quickest one that fits, the quickest first
  std::vector<double> work_, rest_;  // by levels: what their pipelines take at least; that, and all that follows
  std::vector<Label> labels_;
  std::vector<std::vector<int>> at_;  // by levels that have run
  size_t made_ = 0;
  // extensions_: how often labels were extended by a step. moves_: for each placement before the step (from 1; 0:
  // none), the extension for which the seconds of its moves were last computed, and these seconds.
  std::uint64_t extensions_ = 0;
  std::vector<std::pair<std::uint64_t, double>> moves_;
  std::unordered_map<std::uint64_t, Marks> marks_;  // by levels and last placement of the labels
};

}  // namespace switchyard::planner
