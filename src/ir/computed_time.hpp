// What a rank computed in a step, and for how long.
#pragma once

#include <compare>

namespace switchyard::ir {

/// Time of one instruction of a run, or of a whole other task, without what was waited for or transferred meanwhile.
struct ComputedTime {
  static constexpr int kWholeTask = -1;
  int task = 0;  // number in the Program
  int instr = kWholeTask;
  double seconds = 0;
  auto operator<=>(const ComputedTime&) const = default;
};

}  // namespace switchyard::ir
