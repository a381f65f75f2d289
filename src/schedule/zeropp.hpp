// ZeroPP: blocks of micro-batches go through the chunks of all stages one after the other, so that each chunk's
// parameters are gathered once for the forward and once for the gradient items of a block.
#pragma once

#include "schedule/replay.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::schedule {

/// `chunks` chunks per stage in a loop; micro-batches in blocks of `every`, the last one with what is left. In a block
/// a stage runs the forward items of its chunks upward, of the last one forward and gradient items as they come, then
/// the gradient items of the others downward; weight gradients fill idle time, and all of a block are done when the
/// next one begins. So a stage reads one chunk's parameters after the other, the last chunk's once for both. idle with
/// F = B = W, no send and blocks of equal size: 0 on all stages if every >= 2 stages - 1, more otherwise method   list
/// scheduling under a few rules of when weight gradients run; the schedule with the shortest makespan at
///          `costs` is taken, then that with the shortest longest_stage(), then the one that keeps fewest of them
///          waiting
/// source   arXiv 2402.03791
/// errors   InternalError for stages < 1, mbs < 0, chunks < 1, every < 1, or costs that aren't those of all positions
Schedule zeropp(int stages, int mbs, int chunks, int every, const Costs& costs);

}  // namespace switchyard::schedule
