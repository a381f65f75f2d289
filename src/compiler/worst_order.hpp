// The orders of a rank's tasks in which it may need the most memory.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "ir/program.hpp"

namespace switchyard::compiler {

/// Whether the rank gets values by the task, and sends none.
bool is_received(const ir::Task& task, int rank);

/// The run whose value a send takes; the others that it waits for are the receiver's.
int maker_of(const ir::Task& send, const ir::Program& program);

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

/// A task of a rank in the worst order: where it takes memory (begins), where it gives back memory (ends).
struct Moment {
  int task = 0;
  bool begins = true, ends = true;
};

/// The rank's tasks: compute tasks in their order, all others between them. Receives are done where they can be at the
/// earliest, reductions and sends where they must be at the latest. Gathers, collectives, and moves of parameters to
/// `phase` begin where they can at the earliest and end where they must at the latest, so that a phase's copies lie
/// beside those of the former one both while that one still computes and while this one does. Moves to earlier phases
/// have ended by then, and those to later ones have not begun: they are made as early, and as late, as they can be.
/// Moves to the first phase, from home, count as those to the second one.
std::vector<Moment> worst_order(const ir::Program& program, const Arrivals& arrivals, int rank, int phase);

}  // namespace switchyard::compiler
