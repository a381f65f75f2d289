#include "planner/timeline.hpp"

namespace switchyard::planner {

void Timeline::add(const PhaseTimes& phase) {
  const double begin = this->begin();
  moved = begin + phase.moves;
  before = computed;
  computed = std::max(std::max(computed, begin + phase.first_unit) + phase.work, moved);
  flushed = std::max(flushed, computed) + phase.flush;
}

}  // namespace switchyard::planner
