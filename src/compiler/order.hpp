// The order of a Program: list scheduling by estimated times, which gives a topological order of the joint task graph.
#pragma once

#include <tuple>
#include <vector>

#include "cluster/cluster.hpp"
#include "compiler/assemble.hpp"
#include "ir/program.hpp"

namespace switchyard::compiler {

/// A queue of a rank: rank, kind, ir::stage_of_queue.
using QueueKey = std::tuple<int, ir::Queue, int>;
QueueKey queue_of(const ir::Task& task, int rank);

/// Kinds of queues that tasks have.
inline constexpr int kQueueKinds = static_cast<int>(ir::Queue::collective) + 1;
/// Numbers a rank's queues from 0, in the same way on all ranks and in all programs.
inline int queue_number(const ir::Task& task) {
  return ir::stage_of_queue(task) * kQueueKinds + static_cast<int>(task.queue);
}

/// Numbers the queues of all ranks from 0, as indices of tables.
class QueueNumbers {
 public:
  QueueNumbers(const std::vector<ir::Task>& tasks, int ranks);
  size_t count() const { return static_cast<size_t>(ranks_ * of_rank_); }
  size_t of(const ir::Task& task, int rank) const { return static_cast<size_t>(rank * of_rank_ + queue_number(task)); }

 private:
  int ranks_ = 0, of_rank_ = 0;
};

/// Tasks in order of estimated start. `tasks` are in creation order, to which their waits refer; on each rank and queue
/// creation order is kept. A run's estimated duration (ns) is in `end`. InternalError with the cycle if there is no
/// order: the program could deadlock; and with what ir::verify finds.
ir::Program in_order(std::vector<ir::Task> tasks, const cluster::Cluster& cluster);

/// Rough duration in ns of a segment on a micro-batch of T tokens with `pairs` query-key pairs; it affects only an
/// order, never a result.
i64 estimate_compute(const SegmentCost& cost, double T, double pairs);

/// Messages that carry a boundary value from a stage's ranks to the next one's, as boxes of the whole value of T
/// tokens.
std::vector<layout::Msg> boundary_messages(const ir::Buffer& out, const ir::Buffer& in, const std::vector<int>& from,
                                           const std::vector<int>& to, i64 T);

}  // namespace switchyard::compiler
