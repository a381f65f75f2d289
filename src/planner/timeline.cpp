#include "planner/timeline.hpp"

namespace switchyard::planner {

void Timeline::add(const PhaseTimes& phase) {
  const double begin = this->begin();
  moved = begin + phase.moves;
  before = computed;
  computed = std::max(std::max(computed, begin + phase.first_unit) + phase.work, moved);
  reduced = std::max(reduced, computed) + phase.reduce;
}

}  // namespace switchyard::planner
