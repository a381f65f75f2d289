// Error feedback: what encoding lost of the gradients that a rank has sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "compiler/assemble.hpp"

namespace switchyard::runtime {

/// A rank's residuals as compiler::residuals_of places them, in the precision of the state. They lie on the host, where
/// messages are encoded, and stay where they are. No locks: all transfers that use them are tasks of one queue.
class Residuals {
 public:
  struct Part {
    int param = 0;
    layout::Box box{};
    at::Tensor values{};  // shaped like the box
  };

  /// All residuals are zero.
  Residuals(const compiler::Plans& plans, int rank);
  const std::vector<Part>& parts() const { return parts_; }
  /// The residuals of a box, as a view. InternalError if the rank has none.
  at::Tensor view(int param, const layout::Box& box) const;
  /// Sets all residuals to zero, after a step that is left out: what was lost of its gradients is left out, too.
  void zero();

 private:
  std::vector<Part> parts_;
};

}  // namespace switchyard::runtime
