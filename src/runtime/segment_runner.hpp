// Runs a stage's segments on one rank: allocates results, calls kernels, frees what nothing reads any more.
#pragma once

#include <functional>
#include <map>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "runtime/device_order.hpp"
#include "runtime/kernel_call.hpp"
#include "runtime/working_parameters.hpp"

namespace switchyard::runtime {

/// The tensors of a micro-batch on a rank, from its forward to its backward segment. Indices: the stage's buffers.
/// feeds_made: when the device has the feeds, whoever made them.
struct MicroBatchState {
  MicroBatchFeeds feeds;
  Mark feeds_made{};
  std::vector<at::Tensor> slots;
  std::map<int, at::Tensor> roots;
};

/// Hooks of a run: called before the first use of a unit's parameters, and after the last write of its gradients.
/// collective: after one, with when it ran, and since when the run waited for it; timed: after an operator, with its
/// instruction's number in the segment and what it took by `clock`; both may be empty.
struct RunHooks {
  std::function<void(int unit)> await, release;
  std::function<void(const Flight::Times&)> collective{};
  std::function<void(int instr, Seconds time)> timed{};
  SecondsClock clock = wall_seconds;
};

class SegmentRunner {
 public:
  SegmentRunner(const ir::Graph& graph, const ir::StageCode& stage, int position, DType state, at::Device device);
  /// A piece of the segment (ir::kWhole: all of it); those of a run one after the other.
  void run(const ir::Segment& segment, int piece, MicroBatchState& state, WorkingParameters& working, const RunKey& key,
           const ReplicaLink& replica, RopeTables& rope, const RunHooks& hooks) const;
  /// The calling thread's stream uses what other streams may have made: feeds, and what came from other stages.
  void record_uses(const MicroBatchState& state) const;
  /// A tensor for a buffer, e.g. a boundary value that a send fills.
  at::Tensor allocate(int buffer, MicroBatchState& state) const;

 private:
  at::Tensor operand(int buffer, bool output, MicroBatchState& state, WorkingParameters& working,
                     const RunKey& key) const;

  const ir::Graph& graph_;
  const ir::StageCode& stage_;
  int position_;
  DType state_dtype_;
  at::Device device_;
  std::map<int, std::vector<int>> members_;  // root -> buffers in order of slot
  std::map<const ir::Operator*, Kernel> kernels_;
};

}  // namespace switchyard::runtime
