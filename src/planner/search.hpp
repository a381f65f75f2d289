// The search for the plans that take the least time in the planner's own model, and only by what is proven.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/cost_model.hpp"
#include "planner/timeline.hpp"
#include "planner/transfers.hpp"

namespace switchyard::planner {

/// A bucket: the documents of `range` under a shape, in micro-batches of at most `capacity` tokens.
struct Phase {
  Range range;
  Shape shape;
  i64 capacity = 0;
  auto operator<=>(const Phase&) const = default;
};

/// Phases in the order in which they run. Home is on the longest documents' placement.
struct Choice {
  std::vector<Phase> phases;
  int zero = 1;  // home's
  double seconds = 0;

  const Phase& longest() const;
  Home home() const { return {longest().shape.placement, zero}; }
};

/// What candidates were left out by; a candidate is a shape for a range of lengths with a capacity of micro-batches.
struct Counts {
  i64 candidates = 0;
  i64 rough = 0;      // its placement's bound: no plan with it can be among the best
  i64 memory = 0;     // it takes more memory than a rank has, wherever home is
  i64 bound = 0;      // its own bound
  i64 dominated = 0;  // its bound isn't below the time of another one of the placement that takes no more memory
  i64 timed = 0;      // not left out: packed and replayed
  i64 pruned() const { return candidates - timed; }
};

/// What tells plans apart: the documents that share the longest ones' bucket, that bucket's degrees (dp, tp, pp), and
/// on several hosts which ranks are side by side. All else are details, of which the search takes the best.
std::uint64_t key_of(const CostModel& model, const Choice& choice);
/// Whether documents of every length have the same degrees (and ranks side by side): a bucket that is cut in two makes
/// no other plan.
bool same_degrees(const CostModel& model, const Choice& a, const Choice& b);

/// stop: asked again and again; once it says so, the search ends with the best plan that it has, as soon as it has one.
struct SearchSettings {
  i64 memory = 0;        // bytes a rank has; 0: without limit
  int most_buckets = 0;  // 0: as many as there are bounds
  int top = 1;  // so many of the best plans: the best of each key, but for those with the same degrees as a quicker one
  std::function<bool()> stop{};
  /// Asked besides while all but the best plan are looked for: the best one is known by then.
  std::function<bool()> enough{};
};

struct Found {
  std::vector<Choice>
      best;  // the best first; fewer than asked for if there are no more or the search was stopped. Empty: nothing fits
  Counts counts;
  double least = 0;    // seconds; no plan takes less
  bool proven = true;  // the first of `best` is the best of all; else the search was stopped before that was known

  /// How much more than the optimum the best plan may take at most, as a fraction of that.
  double gap() const { return proven ? 0 : best.front().seconds / least - 1; }
};

/// Capacities of micro-batches for a range: its longest document, and doubled as long as that is at most twice the
/// longest document of all.
std::vector<i64> capacities(const CostModel& model, Range range);

/// Seconds of a choice's step, whatever its `seconds` say; infinite if a rank needs more than `memory` bytes (0: no
/// limit).
double step_seconds(const CostModel& model, const Transfers& transfers, const Choice& choice, i64 memory);
/// The same as a timeline, each phase with what it adds.
std::vector<PhaseTimes> phase_times(const CostModel& model, const Transfers& transfers, const Choice& choice);

/// The best of all plans, in any order, with any home, whose buckets have documents, whose shapes are among `shapes`,
/// and whose micro-batches have a capacity of capacities(). Equal times are reported apart by a fixed order, so the
/// result is a function of the arguments.
Found search(const CostModel& model, const Transfers& transfers, const std::vector<Shape>& shapes,
             const SearchSettings& settings);

}  // namespace switchyard::planner
