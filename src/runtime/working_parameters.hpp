// Working parameters: what strategies borrow on one rank, unit by unit, and the gradients that they make of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>

#include "compiler/holdings.hpp"
#include "runtime/home.hpp"

namespace switchyard::runtime {

/// A phase of a step, and the strategy that it runs under; strategy -1: none.
struct PhaseKey {
  int strategy = -1, phase = -1;
};

/// Runs that may have tensors of their own. gathers, reduces: as those of ir::StageCode. copy, kept, gradients: what
/// compiler::use_of_run says of them, of any unit, but for copies of the unit that is kept.
struct RunKey {
  PhaseKey phase;
  bool gathers = false, reduces = false;
  compiler::UnitUse copy{}, kept{}, gradients{};
};

/// Parameters lie in the precision of computation and are read only; gradients are running sums in the precision of the
/// state. Whatever belongs to a phase ends with it, when the last task that reads it is done; the next phase may have
/// taken over its memory. Where these are cut by rows (layout::RowCuts), a phase has only its rows: runs have copies of
/// parameters that are gathered from these, and make gradients that are reduced to these. All functions are
/// thread-safe; which of two calls comes first is up to the program.
class WorkingParameters {
 public:
  /// Refers to plans, holdings and home.
  WorkingParameters(const compiler::Plans& plans, const compiler::Holdings& holdings, const Home& home,
                    at::Device device);

  /// Makes a unit's parameters: views of home's compute copy or of the previous phase's tensors where boxes are equal,
  /// else room, into which pieces that the rank has are copied; moves bring the others. Each group has memory of its
  /// own, so that one which the next strategy keeps holds no other. previous: the phase before.
  void allocate(PhaseKey phase, PhaseKey previous, int unit);
  /// The rank's shard. InternalError unless the unit is allocated.
  at::Tensor param(PhaseKey phase, int param) const;
  /// The tensor that a run reads: the rank's shard, or the run's copy. InternalError unless it is there.
  at::Tensor run_param(const RunKey& run, int param) const;
  /// Room for a run's copy, made at first use, allocated next to those of the others of its group.
  at::Tensor run_copy(const RunKey& run, int param);

  /// The accumulator of a parameter's gradient, made and zeroed at first use, allocated next to the
  /// others of its group.
  at::Tensor gradient(PhaseKey phase, int param);
  /// The tensor to which a run adds its gradient: the accumulator, or one of the run's own, which is made in the same
  /// way; then the accumulator to which it will be added is made, too.
  at::Tensor run_gradient(const RunKey& run, int param);
  bool has_gradient(PhaseKey phase, int param) const;

  /// The calling thread's stream uses what this has.
  void record_use(const compiler::UnitUse& use) const;
  void drop(const compiler::UnitUse& use);
  /// Memory that runs had of their own is overwritten with NaN when it is dropped, so that who still reads it is found.
  void poison_what_is_dropped() { poison_ = true; }

  /// A view of `box` to send: from the previous phase's parameters, home's compute copy, or those of the phase itself.
  /// InternalError if the rank has it nowhere.
  at::Tensor source(PhaseKey phase, PhaseKey previous, int param, const layout::Box& box) const;
  /// The same for a run's copy: from the phase's parameters, or the copy itself.
  at::Tensor run_source(const RunKey& run, int param, const layout::Box& box);

 private:
  using Unit = std::map<int, at::Tensor>;  // by parameter

  void copy_held(at::Tensor& target, int param, const layout::Box& box, PhaseKey previous) const;
  at::Tensor held(const compiler::UnitUse& use, int param) const;
  template <class Elements, class Box, class Make>
  at::Tensor group_member(const compiler::UnitUse& use, int param, const Elements& elements, const Box& box,
                          const Make& make);
  compiler::UnitUse use_of(PhaseKey phase, int param, bool gradient) const;
  compiler::UnitUse use_of(const RunKey& run, int param, bool gradient) const;
  int unit_of(int param) const { return plans_.graph().param(param).unit; }

  const compiler::Plans& plans_;
  const compiler::Holdings& holdings_;
  const Home& home_;
  at::Device device_;
  bool poison_ = false;
  std::mutex making_;         // guards what runs make
  mutable std::mutex mutex_;  // guards held_
  std::map<compiler::UnitUse, Unit> held_;
};

}  // namespace switchyard::runtime
