// Time of a schedule, replayed with given times of its items.
#pragma once

#include <vector>

#include "base/units.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::schedule {

/// Times of one micro-batch at one position of the pipeline. BW takes input_gradient + weight_gradient - saved.
struct ItemTimes {
  Seconds forward, input_gradient, weight_gradient, saved{};
  bool operator==(const ItemTimes&) const = default;
};

/// at: [position], or one entry that holds for all. send: between neighbouring positions of different stages, for an
/// activation or a gradient; it overlaps with computation, and sends don't slow each other down.
struct Costs {
  std::vector<ItemTimes> at;
  Seconds send{};

  const ItemTimes& of(int position) const { return at[at.size() == 1 ? 0 : static_cast<size_t>(position)]; }
  Seconds of(Pass pass, int position) const;
};

struct Span {
  Seconds start, end;
};

/// idle: of each stage, between the start of its first item and the end of its last, minus the time it works.
struct Timing {
  std::vector<std::vector<Span>> spans;  // [stage][item]
  std::vector<Seconds> idle;             // [stage]
  Seconds makespan{};                    // end of the last item of all

  Seconds worst_idle() const;
  /// The longest time from the start of a stage's first item to the end of its last: the time per step if consecutive
  /// steps could overlap.
  Seconds longest_stage() const;
};

/// Replays a schedule: each item starts as soon as its stage is free and the items that it waits for have arrived.
/// InternalError as verify, if `costs` has neither one entry nor one for each position, or a time is negative or not
/// finite.
Timing replay(const Schedule& schedule, const Costs& costs);

/// InternalError unless these are costs of so many positions.
void check_costs(const Costs& costs, int positions);

}  // namespace switchyard::schedule
