// A step in the planner's model: phases, the parameters that are received before each, and the gradients that are
// reduced after it.
#pragma once

#include <algorithm>
#include <limits>

namespace switchyard::planner {

/// Seconds that a phase adds: moves: receiving the parameters that its strategy lacks; first_unit: the part of this
/// until the unit that is used first has arrived; work: its pipelines; reduce: reducing its gradients to home.
/// last_unit: the part of this for the gradients that are complete last; last_backward: the end of the work, in which
/// gradients become complete, one unit after the other; share: of a device that computes, what a transfer beside it
/// takes.
struct PhaseTimes {
  double moves = 0, first_unit = 0, work = 0, reduce = 0;
  double last_unit = 0, last_backward = 0, share = 0;
};

/// Seconds by which a transfer lengthens a step at least: hidden, a second of it takes `share` from the computing that
/// is beside it, which hides so much more of it.
inline double least_of_transfer(double share, double seconds) { return share / (1 + share) * seconds; }

/// Parameters are received while the previous phase computes, but not before the phase before that one has ended;
/// gradients are reduced while the last backward pass and the next phase compute. Computing and a transfer beside it
/// slow each other down. A phase whose transfers or work take longer never makes a step shorter: the search relies on
/// that.
struct Timeline {
  double before = 0, computed = 0, moved = 0;                 // before: end of the phase before the last one
  double reduced = -std::numeric_limits<double>::infinity();  // nothing yet

  void add(const PhaseTimes& phase);
  /// The earliest time at which the next phase's parameters can be sent.
  double begin() const { return std::max(moved, before); }
  /// No plan that goes on from here ends earlier than this plus what its other phases take at least, for each of which
  /// least_of_transfer() has what moves. share: as that of all phases.
  double least_end(double share) const {
    return computed + least_of_transfer(share, std::max(0.0, reduced - computed));
  }
  /// Whether none of the times that affect later phases is later than in `other`.
  bool no_later(const Timeline& other) const {
    return begin() <= other.begin() && computed <= other.computed && reduced <= other.reduced;
  }
};

}  // namespace switchyard::planner
