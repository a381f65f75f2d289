// A step as the planner sees it: phases, the parameters that come before each, and the gradients that leave after it.
#pragma once

#include <algorithm>

namespace switchyard::planner {

/// Seconds that a phase adds: the parameters that its strategy lacks come (moves), its pipelines work, its gradients go
/// home (reduce). first_unit: until the unit comes that is used first.
struct PhaseTimes {
  double moves = 0, first_unit = 0, work = 0, reduce = 0;
};

/// Parameters come while the phase before computes, but not before the one before that has ended, and gradients leave
/// while the next one computes. All steps are maxima and sums, so a phase that takes longer never makes a step shorter:
/// the search rests on that.
struct Timeline {
  double before = 0, computed = 0, moved = 0, reduced = 0;  // before: when the phase before the last one ended

  void add(const PhaseTimes& phase);
  /// When the next phase's parameters may come.
  double begin() const { return std::max(moved, before); }
  /// Neither later in anything that matters to what follows.
  bool no_later(const Timeline& other) const {
    return begin() <= other.begin() && computed <= other.computed && reduced <= other.reduced;
  }
};

}  // namespace switchyard::planner
