// Working parameters: what strategies borrow on one rank, unit by unit, and the gradients that they make of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <utility>

#include "compiler/holdings.hpp"
#include "runtime/home.hpp"

namespace switchyard::runtime {

/// A phase of a step, and the strategy that it runs under; strategy -1: none.
struct PhaseKey {
  int strategy = -1, phase = -1;
};

/// Parameters lie in the precision of computation and are read only; gradients are running sums in the precision of the
/// state. Whatever is borrowed ends with its phase, at the drop that the program's last reader is followed by; the
/// phase after may have taken over its memory. All functions are thread-safe; which of two calls comes first is up to
/// the program.
class WorkingParameters {
 public:
  /// Refers to plans, holdings and home.
  WorkingParameters(const compiler::Plans& plans, const compiler::Holdings& holdings, const Home& home,
                    at::Device device);

  /// Makes a unit's parameters: views of home's compute copy or of the previous phase's tensors where boxes are equal,
  /// else room, into which pieces that the rank has are copied; moves bring the others. Each group has memory of its
  /// own, so that one which the next strategy keeps holds no other. previous: the phase before.
  void allocate(PhaseKey phase, PhaseKey previous, int unit);
  /// The rank's shard. InternalError unless the unit is prepared.
  at::Tensor param(PhaseKey phase, int param) const;
  void drop(PhaseKey phase, int unit);

  /// The accumulator of a parameter's gradient, made and zeroed at first use with those of its group, which adjoin.
  at::Tensor gradient(PhaseKey phase, int param);
  bool has_gradient(PhaseKey phase, int param) const;
  void drop_gradients(PhaseKey phase, int unit);

  /// A view of `box` to send: from the previous phase's parameters, home's compute copy, or those of the phase itself.
  /// InternalError if the rank has it nowhere.
  at::Tensor source(PhaseKey phase, PhaseKey previous, int param, const layout::Box& box) const;

 private:
  using Unit = std::map<int, at::Tensor>;  // by parameter

  void copy_held(at::Tensor& target, int param, const layout::Box& box, PhaseKey previous) const;
  int unit_of(int param) const { return plans_.graph().param(param).unit; }

  const compiler::Plans& plans_;
  const compiler::Holdings& holdings_;
  const Home& home_;
  at::Device device_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, Unit> params_, gradients_;  // by phase and unit
};

}  // namespace switchyard::runtime
