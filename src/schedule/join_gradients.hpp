// Both kinds of gradients in one item again, where a schedule that has them apart leaves the time.
#pragma once

#include <span>
#include <vector>

#include "schedule/replay.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::schedule {

/// Makes BW of B and W where that saves time (ItemTimes::saved) and no device's makespan grows for it by more than a
/// share. If a W of another micro-batch comes first at the position, the two change places, so that W may come in any
/// order. No stage holds more activations than before.
/// schedule  valid (verify()), with B and W apart
/// slacks    the shares; the result has a schedule for each
/// method    the items are replayed on all devices. Each has a latest start, with which those behind it keep the
///           makespan (the float of the critical path method); a B is joined with its W if what follows on its stage,
///           and what it sends to, still starts in time
/// errors    InternalError for no devices, for costs that aren't those of all positions, or if the stages wait for each
///           other in a cycle
std::vector<Schedule> join_gradients(const Schedule& schedule, const std::vector<Costs>& devices,
                                     std::span<const double> slacks);

}  // namespace switchyard::schedule
