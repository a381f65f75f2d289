#include "planner/timeline.hpp"

namespace switchyard::planner {

void Timeline::add(const PhaseTimes& phase) {
  const double begin = this->begin(), waits = std::max(0.0, begin + phase.first_unit - computed),
               left = std::min(std::max(0.0, reduced - computed), phase.work);  // gradients of earlier phases beside it
  moved = begin + phase.moves + phase.share * std::min(phase.moves, computed - begin + phase.work);
  before = computed;
  // What is waited for is moved beside nothing.
  computed = std::max(computed + waits + phase.work + phase.share * (phase.moves - waits + left), moved);
  // Counted as if no earlier gradients were on their way: those that wait for them would slow less of the computing,
  // and a later step could end sooner.
  const double gradients = std::max(reduced, computed - phase.last_backward),
               beside = phase.share * std::min(phase.last_backward, phase.reduce);
  computed += beside;
  reduced = std::max(gradients + phase.reduce + beside, computed + phase.last_unit);
}

}  // namespace switchyard::planner
