// The orders of a rank's tasks in which it may need the most memory.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "ir/program.hpp"

namespace switchyard::compiler {

/// Whether the rank gets values by the task, and sends none.
bool is_received(const ir::Task& task, int rank);

/// How early a receive can be done: what it needs of the receiving rank itself. A value that comes up a pipeline needs
/// the gradients that its sender waited for before, and these the rank's own runs.
class Arrivals {
 public:
  explicit Arrivals(const ir::Program& program);
  /// The last compute task of the rank that must have ended before the send `task` can be received there; -1: none.
  int needs(int id, int rank) const;

 private:
  std::vector<std::vector<std::pair<int, int>>> needs_;  // [task]: receiving rank, its task
};

/// A run -> the send that hands its value to the rank's next chunk. At the worst pace the chunk's feeds are made as
/// soon as the run has ended, however late the send lets go of the value.
using Handovers = std::multimap<int, int>;
Handovers handovers_of(const ir::Program& program, int rank);

/// When parameters move to the next strategy: early, that strategy's copies lie beside the running one's; late, the
/// former strategy's copies stay while the next one computes.
enum class Switching { early, late };

/// The rank's tasks: compute tasks in their order; gathers, collectives, receives and early switching tasks before the
/// first one that they can pass before; reductions, sends and late switching tasks after the last one that they can
/// pass after.
std::vector<int> worst_order(const ir::Program& program, const Arrivals& arrivals, int rank, Switching switching);

}  // namespace switchyard::compiler
