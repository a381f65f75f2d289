// The order of a rank's rows in which it needs the most memory.
#pragma once

#include <utility>
#include <vector>

#include "ir/program.hpp"

namespace switchyard::compiler {

/// Whether the rank gets values by the row, and sends none.
bool is_received(const ir::Task& task, int rank);

/// How early a receive can be done: what it needs of the receiving rank itself. A value that comes up a pipeline needs the gradients that
/// its sender waited for before, and these the rank's own runs.
class Arrivals {
 public:
  explicit Arrivals(const ir::Program& program);
  /// The last compute row of the rank that must have ended before the send `row` can be received there; -1: none.
  int needs(int row, int rank) const;

 private:
  std::vector<std::vector<std::pair<int, int>>> needs_;  // [row]: receiving rank, its row
};

/// The rank's rows: compute rows in their order; switching rows and receives before the first one that they can pass before; flushes and sends
/// after the last one that they can pass after.
std::vector<int> worst_order(const ir::Program& program, const Arrivals& arrivals, int rank);

}  // namespace switchyard::compiler
