#include "planner/timeline.hpp"

namespace switchyard::planner {

void Timeline::add(const PhaseTimes& phase) {
  const double begin = this->begin(), waits = std::max(0.0, begin + phase.first_unit - computed),
               left = std::min(std::max(0.0, reduced - computed), phase.work);  // gradients of earlier phases beside it
  moved = begin + phase.moves + phase.share * std::min(phase.moves, computed - begin + phase.work);
  before = computed;
  // What is waited for is moved beside nothing.
  computed = std::max(computed + waits + phase.work + phase.share * (phase.moves - waits + left), moved);
  const double gradients = std::max(reduced + phase.share * left, computed - phase.last_backward),
               beside = phase.share * std::clamp(computed - gradients, 0.0, phase.reduce);
  computed += beside;
  reduced = std::max(gradients + phase.reduce + beside, computed + phase.last_unit);
}

}  // namespace switchyard::planner
