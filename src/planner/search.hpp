// The search for the plans that take the least time in the planner's own model; it prunes only with proofs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
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

/// Phases in the order in which they run. Home is on the placement of the longest documents.
struct Choice {
  std::vector<Phase> phases;
  int zero = 1;  // home's
  double seconds = 0;

  const Phase& longest() const;
  Home home() const { return {longest().shape.placement, zero}; }
};

/// Number of candidates by the reason for which they were pruned; a candidate is a shape for a range of lengths with a
/// capacity of micro-batches.
struct Counts {
  i64 candidates = 0;
  i64 rough = 0;       // by its placement's bound: no plan with it can be among the best
  i64 memory = 0;      // by memory: it needs more than a rank has, wherever home is
  i64 bound = 0;       // by its own bound
  i64 dominated = 0;   // another candidate of the placement is at least as fast and takes no more memory
  i64 timed = 0;       // not pruned: packed and replayed
  i64 unexamined = 0;  // not pruned: the search was stopped while plans with it might have been quicker
  i64 steps = 0;       // work of the search, of about a microsecond each; the same on every machine
  i64 pruned() const { return candidates - timed - unexamined; }
  Counts& operator+=(const Counts& other);
};

/// dp, mesh_key, pp.
using Degrees = std::tuple<int, std::uint64_t, int>;
/// Identifies a plan among others: the documents that share the longest ones' bucket, and that bucket's degrees.
/// Everything else is a detail, for which the search takes the best value.
using PlanKey = std::tuple<int, Degrees>;
PlanKey key_of(const Choice& choice);
/// Whether documents of every length have the same degrees: splitting a bucket in two does not make another plan.
bool same_degrees(const CostModel& model, const Choice& a, const Choice& b);

/// Work on the plans after the first one, and on the best single strategies, in steps (as in Counts), with which a
/// command looks for them.
inline constexpr i64 kStepsOfRunnersUp = 100000, kStepsOfSingles = 2000000;

/// spent: share of what it may take that the search has taken, called repeatedly; from 1 on the search ends with the
/// best plan so far, as soon as there is one. runners_up, of_singles: limits of the work on the plans after the first,
/// and on single strategies, in steps. With them these plans are the same on every machine: `spent` is called until the
/// first is known, and no more. many: a
/// space of more shapes is searched first in its usual part, in half of the time at most. equal: models that are equal
/// to the search's, so that more threads can compute bounds; neither these nor their number change a result.
struct SearchSettings {
  i64 memory = 0;        // bytes of a rank; 0: no limit
  int most_buckets = 0;  // 0: as many as there are bounds
  int top = 1;  // number of plans to return: the best of each key, except those with the same degrees as a faster one
  int singles = 0;  // number of single strategies to return, whether they are among these plans or not
  std::function<double()> spent{};
  std::optional<i64> runners_up{}, of_singles{};
  size_t many = 20000;
  std::vector<const CostModel*> equal{};
  size_t threads = 1;
  /// Called once with the best plan, when it is known to be that and the others are searched for.
  std::function<void(const Choice&)> on_first{};
};

struct Found {
  std::vector<Choice>
      best;  // best first; fewer than `top` if there are no more or the search was stopped; empty: nothing fits
  std::vector<Choice> singles;  // the best that have one strategy for all documents; empty: none that is known fits
  Counts counts;
  double least = 0;    // lower bound on the seconds of any plan
  bool proven = true;  // the first of `best` is optimal; false: the search was stopped before that was known
  double share = 1;    // share of the memory that was to be filled at most

  /// Upper bound on the best plan's excess over the optimum, as a fraction of the optimum.
  double gap() const { return proven ? 0 : best.front().seconds / least - 1; }
};

/// Capacities of micro-batches for a range: its longest document, doubled repeatedly up to twice the longest document
/// of all; where that is short, up to 65536 tokens, but no further than until all documents of the range fit into one.
/// What runs gather is then gathered for more tokens, if there is memory for these.
std::vector<i64> capacities(const CostModel& model, Range range);

/// Seconds of a choice's step, computed anew (its `seconds` are ignored); infinite if a rank needs more than `memory`
/// bytes (0: no limit).
double step_seconds(const CostModel& model, const Transfers& transfers, const Choice& choice, i64 memory);
/// The times that each phase of the choice adds to the timeline.
std::vector<PhaseTimes> phase_times(const CostModel& model, const Transfers& transfers, const Choice& choice);

/// The best of all plans, in any order, with any home, whose buckets have documents, whose shapes are among `shapes`,
/// and whose micro-batches have a capacity of capacities(). Ties are broken by a fixed order, so the result is a
/// function of the arguments.
Found search(const CostModel& model, const std::vector<Shape>& shapes, const SearchSettings& settings);

}  // namespace switchyard::planner
