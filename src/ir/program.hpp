// Program: for every rank the tasks of one step, in the order in which it issues them. Executor, memory prediction,
// printer and simulator read the same tasks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/errors.hpp"
#include "codecs/rule.hpp"
#include "ir/code.hpp"
#include "layout/message_list.hpp"

namespace switchyard::ir {

// Kinds of tasks, each with what distinguishes it from others of its kind. stage: position of the pipeline. unit: of
// parameters. round: of a transfer whose messages pass on or add what earlier rounds brought.

/// A unit's working parameters are made on its ranks: views of home's compute copy, local copies, room for what moves
/// bring.
struct Allocate {
  int unit = -1;
};
/// Parameters of a unit.
struct Move {
  int unit = -1, round = -1;
};
/// A segment, or a piece of it, on a micro-batch. replica: pipeline of the strategy (group, then data).
struct Run {
  int replica = -1, group = -1, stage = -1, micro_batch = -1;
  Pass pass = Pass::F;
  int piece = kWhole;
};
/// Activations (F) or gradients to the next stage of the pass.
struct Send {
  int replica = -1, group = -1, stage = -1, micro_batch = -1;
  Pass pass = Pass::F;
};
/// Stands for a run of a replica that lacks a micro-batch which others of its group have, or, with micro_batch -1, for
/// all runs of a replica that has none: fills their gradients with zeros.
struct ZeroFill : Run {};
/// A unit's parameters for runs of a block that begins with the micro-batch, of all replicas that share them (depth,
/// ZeRO-3).
struct Gather {
  int group = -1, stage = -1, micro_batch = -1;
  Pass pass = Pass::F;
  int unit = -1, round = -1;
};
/// Gradients that these runs made of a unit to the owners of their rows (depth, ZeRO-2, 3).
struct ReduceScatter {
  int group = -1, stage = -1, micro_batch = -1;
  Pass pass = Pass::F;
  int unit = -1, round = -1;
};
/// Gradients of a unit to home's owners.
struct Reduce {
  int unit = -1, round = -1;
};
/// Sums of a unit's gradients to home's further copies.
struct Broadcast {
  int unit = -1, round = -1;
};
/// Global norm, loss and finiteness.
struct Norm {};
/// Optimizer on home's part of a unit.
struct Update {
  int unit = -1;
};

using AnyTask =
    std::variant<Allocate, Move, Run, Send, ZeroFill, Gather, ReduceScatter, Reduce, Broadcast, Norm, Update>;
/// The alternatives of AnyTask, in their order.
enum class TaskKind { allocate, move, run, send, zero_fill, gather, reduce_scatter, reduce, broadcast, norm, update };
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

/// phase: index in the batch plan; -1: of the whole step.
struct Task {
  AnyTask what{Run{}};
  Queue queue = Queue::compute;
  int phase = -1;
  std::vector<int> ranks{};  // members, ascending (run, send: by position)
  std::vector<Wait> after{};
  layout::MessageList messages{};  // tensor = parameter; send: tensor 0, boxes of the boundary value; from a rank to
                                   // itself where its next chunk takes the value over
  codecs::Rule encoding{};         // how the messages are encoded
  i64 bytes = 0;                   // over links, all messages as they travel; of lossless ones the most
  i64 start = 0, end = 0;          // estimated ns, for order only

  TaskKind kind() const { return static_cast<TaskKind>(what.index()); }
  template <class Kind>
  bool is() const {
    return std::holds_alternative<Kind>(what);
  }
  /// Fields that several kinds have. InternalError for any other kind.
  int replica() const;
  int group() const;
  int stage() const;
  int micro_batch() const;
  Pass pass() const;
  int piece() const;
  int unit() const;
  int round() const;
  bool forward() const { return pass() == Pass::F; }
};

/// replica, group, stage, micro_batch, unit, round, piece, pass: what distinguishes tasks of a kind and phase. What the
/// kind doesn't have is as by default.
std::array<int, 8> numbers_of(const Task& task);

/// Each rank has a queue of a kind, and one in each direction for each stage that sends: that stage, 0 for the others.
int stage_of_queue(const Task& task);

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
