// What a rank computed in a step, and for how long.
#pragma once

#include <compare>

namespace switchyard::ir {

/// Of a run that of one instruction, otherwise of the whole task. Without what was waited for or transferred meanwhile.
struct ComputedTime {
  static constexpr int kWholeTask = -1;
  int task = 0;  // of the Program
  int instr = kWholeTask;
  double seconds = 0;
  auto operator<=>(const ComputedTime&) const = default;
};

}  // namespace switchyard::ir
