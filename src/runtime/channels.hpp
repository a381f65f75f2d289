// Channels: the queues in which the tasks of programs exchange messages.
#pragma once

#include <vector>

#include "comm/fabric.hpp"
#include "compiler/assemble.hpp"
#include "ir/program.hpp"

namespace switchyard::runtime {

/// Channels below this number are for others who use an executor's fabric.
inline constexpr int kFirstChannel = 17;

/// The kinds of exchange within a run: by operators, by collectives, which run beside them, between ring ranks, and by
/// collectives that are tasks of their own, where micro-batches run in pairs: these overtake those of earlier runs.
enum class Within { operators, collectives, ring, pieces };
inline constexpr size_t kWithin = static_cast<size_t>(Within::pieces) + 1;

/// The channel of a transfer or a norm: that of its queue, among the task's ranks. Queues have the same numbers on all
/// ranks and in all programs, and any two ranks run their common tasks of a queue in the same order, whoever else takes
/// part in them: so a queue is one tag, or one communicator of all ranks.
comm::Channel channel_of(const ir::Task& transfer);
/// The channel for what the ranks of a run, or some of them, exchange within it.
comm::Channel channel_within(const ir::Task& run, Within who);
/// The kind of a segment's collectives.
Within collectives_of(const ir::Segment& segment);
/// The ids of the channels on which the programs of these plans may move a device's memory, ascending.
std::vector<int> device_channels(const compiler::Plans& plans);

}  // namespace switchyard::runtime
