// What encoding loses of a rank's gradients, and the rank keeps for its next messages of the same elements (error
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

  /// Whether each element of `part` is in messages.
  bool sends(const layout::Box& part) const;
};

/// Residuals by rank, then parameter and lower corner. A rank has one residual of an element, whatever strategies,
/// phases and micro-batches send it: all are partial sums of the same gradient. Boxes of a parameter are disjoint, and
/// the box of each message that is encoded with feedback lies in one of them. There are none without a backward pass.
std::vector<std::vector<Residual>> residuals_of(const Plans& plans);

/// The rank's residual that has the box; null if none does.
const Residual* find(const std::vector<Residual>& residuals, int param, const layout::Box& box);

}  // namespace switchyard::compiler
