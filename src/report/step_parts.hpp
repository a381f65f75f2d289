// Where the time of a step goes.
#pragma once

#include "report/page.hpp"

namespace switchyard::report {

/// Shares of the predicted or measured step, means over the ranks of all its tracks. A time in which the compute stream
/// of a rank does nothing belongs to what its next task waits for: transfers of this task's phase first, then the other
/// stages if the task before it was of the same phase and that has several, else other ranks.
/// timeline: not merged yet; it has such tracks
StepParts parts_of(const Timeline& timeline, bool measured);

/// The `most` longest tasks of those tracks, each by name once; waiting is no task.
std::vector<LongTask> longest_tasks(const Timeline& timeline, bool measured, size_t most);

}  // namespace switchyard::report
