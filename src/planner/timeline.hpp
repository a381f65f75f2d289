// A step in the planner's model: phases, the parameters that are received before each, and the gradients that are
// reduced after it.
#pragma once

#include <algorithm>

namespace switchyard::planner {

/// Seconds that a phase adds: moves: receiving the parameters that its strategy lacks; first_unit: the part of this
/// until the unit that is used first has arrived; work: its pipelines; reduce: reducing its gradients to home.
struct PhaseTimes {
  double moves = 0, first_unit = 0, work = 0, reduce = 0;
};

/// Parameters are received while the previous phase computes, but not before the phase before that one has ended;
/// gradients are reduced while the next phase computes. All operations are maxima and sums, so a phase that takes
/// longer never makes a step shorter: the search relies on that.
struct Timeline {
  double before = 0, computed = 0, moved = 0, reduced = 0;  // before: end of the phase before the last one

  void add(const PhaseTimes& phase);
  /// The earliest time at which the next phase's parameters can be sent.
  double begin() const { return std::max(moved, before); }
  /// Whether none of the times that affect later phases is later than in `other`.
  bool no_later(const Timeline& other) const {
    return begin() <= other.begin() && computed <= other.computed && reduced <= other.reduced;
  }
};

}  // namespace switchyard::planner
