// Program: for every rank the tasks of one step, in the order in which it issues them. Executor, memory prediction,
// printer and simulator read the same tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/errors.hpp"
#include "ir/code.hpp"
#include "layout/message_list.hpp"

namespace switchyard::ir {

enum class TaskKind {
  allocate,   // a unit's working parameters are made on its ranks: views of home's compute copy, local copies, room for
              // what moves bring
  move,       // parameters of a unit, one round
  run,        // a segment on a micro-batch
  send,       // activations or gradients to the next stage
  zero_fill,  // gradients of a replica without micro-batches, or that lacks one which others of its group have
  gather,     // a unit's parameters for the runs of an item, one round (depth, ZeRO-3)
  reduce_scatter,  // gradients that these runs made of a unit to the owners of their rows, one round (depth,
                   // ZeRO-2, 3)
  reduce,          // gradients of a unit to home's owners, one round
  broadcast,       // their sums to home's further copies, one round
  norm,            // global norm, loss and finiteness
  update           // optimizer on home's part of a unit
};
/// Whether its work is messages: computing otherwise.
bool is_transfer(TaskKind kind);
/// What the elements of a transfer have: gradients are in the precision of state, all else in that of computing.
DType type_of(TaskKind transfer, const Precision& precision);

/// Waits for `task`; unit >= 0: for that unit only - as the waiter's first use of it (run), or as the awaited run's
/// last write.
struct Wait {
  int task = 0, unit = -1;
  bool operator==(const Wait&) const = default;
};

/// phase: index in the batch plan. replica: pipeline of the strategy (group, then data); -1: several of the
/// group, whose runs with the same stage, pass and micro-batch share the task. piece: of the segment that a run or
/// zero-fill stands for. Which fields mean something depends on kind.
struct Task {
  TaskKind kind = TaskKind::run;
  Queue queue = Queue::compute;
  int phase = -1, replica = -1, group = -1, stage = -1, micro_batch = -1, unit = -1, round = -1;
  Pass pass = Pass::F;  // which segment; send: F activations, otherwise gradients
  int piece = kWhole;
  std::vector<int> ranks{};  // members, ascending (run, send: by position)
  std::vector<Wait> after{};
  layout::MessageList messages{};  // tensor = parameter; send: tensor 0, boxes of the boundary value; from a rank to
                                   // itself where its next chunk takes the value over
  bool forward() const { return pass == Pass::F; }
  i64 bytes = 0;           // over links, all messages
  i64 start = 0, end = 0;  // estimated ns, for order only
};

struct Program {
  std::vector<Task> tasks;
  /// Tasks of one rank, ascending.
  std::vector<std::vector<int>> of_rank;
  std::uint64_t fingerprint() const;
};

/// Proves that the tasks are executable in their order: every wait is for an earlier task that shares a rank, every
/// rank lists its tasks in rising order, and messages pass between members. InternalError names the task otherwise.
void verify(const Program& program);

std::string name_of(const Task& task);

}  // namespace switchyard::ir

template <>
struct fmt::formatter<switchyard::ir::Task> : switchyard::FormattedBy<switchyard::ir::Task, switchyard::ir::name_of> {};
