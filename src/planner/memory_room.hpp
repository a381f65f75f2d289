// What a rank's memory leaves to the candidates of a range of lengths, beside home.
#pragma once

#include <vector>

#include "planner/cost_model.hpp"
#include "planner/shape_index.hpp"

namespace switchyard::planner {

class MemoryRoom {
 public:
  /// memory: bytes of a rank; 0: no limit. Model and shapes outlive it.
  MemoryRoom(const CostModel& model, const ShapeIndex& shapes, i64 memory);

  /// Whether there is a limit.
  bool limited() const { return memory_ > 0; }
  /// The largest result of bytes().
  i64 most() const { return most_; }
  /// Bytes for a candidate of the range. That of the longest documents has home on its placement, where home takes
  /// least memory without copies.
  i64 bytes(const Placement& placement, Range range) const;
  /// The largest of capacities() with which a shape of the code may fit, 0: none. Larger ones are too large for each of
  /// them, however few micro-batches it keeps at a time. Found once for all ranges with the same longest documents.
  i64 largest_capacity(int code, Range range);

 private:
  bool fits(const ShapeIndex::Code& code, i64 capacity, Range range) const;

  const CostModel& model_;
  const ShapeIndex& shapes_;
  i64 memory_, most_;
  std::vector<std::vector<i64>> largest_;  // [range.hi][code]; below 0: not yet known
};

}  // namespace switchyard::planner
