// Losses from encoding a rank's gradients, which it keeps for its next messages of the same elements (error
// feedback).
#pragma once

#include <vector>

#include "layout/shape.hpp"

namespace switchyard::compiler {

class Plans;

/// A box of a parameter of which a rank keeps what was lost. sent: disjoint parts of it, of whose elements messages
/// consist; what is in none of them stays 0.
struct Residual {
  int param = 0;
  layout::Box box{};
  std::vector<layout::Box> sent{};
};

/// Residuals by rank, then parameter and lower corner. A rank has one residual of an element, whatever strategies,
/// phases and micro-batches send it: all are partial sums of the same gradient. Boxes of a parameter are disjoint, and
/// the box of each message that is encoded with feedback lies in one of them. There are none without a backward pass.
std::vector<std::vector<Residual>> residuals_of(const Plans& plans);

/// The parts of a box of whose elements a rank with these residuals sends messages; disjoint, each in one residual.
std::vector<layout::Box> sent_parts(const std::vector<Residual>& residuals, int param, const layout::Box& box);

}  // namespace switchyard::compiler
