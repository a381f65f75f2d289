#include "planner/memory_room.hpp"

#include <algorithm>
#include <limits>

#include "planner/search.hpp"

namespace switchyard::planner {

MemoryRoom::MemoryRoom(const CostModel& model, const ShapeIndex& shapes, i64 memory)
    : model_(model),
      shapes_(shapes),
      memory_(memory),
      most_(memory == 0 ? std::numeric_limits<i64>::max() : memory - model.least_home_bytes()),
      largest_(model.bounds().size() + 1) {}

i64 MemoryRoom::bytes(const Placement& placement, Range range) const {
  const bool has_longest = range.hi == static_cast<int>(model_.bounds().size());
  return has_longest && limited() ? memory_ - model_.home_bytes({placement}) : most_;
}

i64 MemoryRoom::largest_capacity(int code, Range range) {
  if (!limited()) return std::numeric_limits<i64>::max();
  std::vector<i64>& of_codes = largest_[static_cast<size_t>(range.hi)];
  of_codes.resize(static_cast<size_t>(shapes_.codes()), -1);
  i64& largest = of_codes[static_cast<size_t>(code)];
  if (largest >= 0) return largest;
  largest = 0;
  for (const i64 capacity : capacities(model_, range)) {
    if (!fits(shapes_.code(code), capacity, range)) break;
    largest = capacity;
  }
  return largest;
}

bool MemoryRoom::fits(const ShapeIndex::Code& code, i64 capacity, Range range) const {
  return std::ranges::any_of(code.members, [&](const ShapeIndex::Member& member) {
    Shape shape = shapes_.shape(member.shape);
    shape.placement = leanest(shape.placement);
    return model_.need_of_one(shape, capacity, range).total() <= bytes(shape.placement, range);
  });
}

}  // namespace switchyard::planner
