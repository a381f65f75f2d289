// Runs a stage's segments on one rank: allocates results, calls kernels, frees what nothing reads any more.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "runtime/device_order.hpp"
#include "runtime/kernel_call.hpp"
#include "runtime/working_parameters.hpp"

namespace switchyard::runtime {

/// The tensors of a micro-batch on a rank, from its forward to its backward segment. slots: by the stage's buffers;
/// roots: memory that several of them share, by ir::Buffer::root, made by whichever stream first makes one of these.
/// feeds_made: when the device has the feeds, whoever made them. rope: of a model that rotates by document.
struct MicroBatchState {
  MicroBatchFeeds feeds;
  Mark feeds_made{};
  std::optional<RopeTables> rope{};
  std::vector<at::Tensor> slots;
  // ready: with two streams, behind what the one that made it had done: its memory may have been another tensor's.
  struct Root {
    std::once_flag made;
    at::Tensor memory;
    Mark ready{};
  };
  std::vector<Root> roots{};
};

/// Hooks of a run: called before the first use of a unit's parameters, and after the last write of its gradients.
/// collective: after one, with when it ran, and since when the run waited for it; timed: after the run, for each of its
/// operators, with its instruction's number in the segment and what it took, by `clock` on a CPU and else by the
/// device, and then also what the host took to issue it, by `clock`; head_start: called before a run that is timed. All
/// may be empty.
struct RunHooks {
  std::function<void(int unit)> await, release;
  std::function<void(const Flight::Times&)> collective{};
  std::function<void(int instr, Seconds time, Seconds issue)> timed{};
  std::function<void()> head_start{};
  SecondsClock clock = wall_seconds;
};

/// Everything known of instructions before they run is looked up when the runner is made.
class SegmentRunner {
 public:
  SegmentRunner(const ir::Graph& graph, const ir::StageCode& stage, int position, DType state, at::Device device);
  /// Room for the tensors of a micro-batch: to be made before any of them is.
  void make_room(MicroBatchState& state) const;
  /// A piece of the segment (ir::kWhole: all of it); those of a run one after the other.
  void run(const ir::Segment& segment, int piece, MicroBatchState& state, WorkingParameters& working, const RunKey& key,
           const ReplicaLink& replica, RopeTables& rope, const RunHooks& hooks) const;
  /// The calling thread's stream uses what other streams may have made: feeds, and what came from other stages.
  void record_uses(const MicroBatchState& state) const;
  /// A tensor for a buffer, e.g. a boundary value that a send fills.
  at::Tensor allocate(int buffer, MicroBatchState& state) const;

 private:
  /// Place of an operand: in a slot, in a feed, or it is a parameter or its gradient. number: of the buffer, or of the
  /// parameter.
  struct Operand {
    enum class Place { slot, feed, param, gradient } place = Place::slot;
    int number = 0;
    at::Tensor MicroBatchFeeds::*feed = nullptr;
  };
  struct Call {
    Kernel kernel = nullptr;  // null: a collective
    std::vector<Operand> in, out;
  };
  /// Columns of a root: where a member's begin, and those of all.
  struct Columns {
    i64 first = 0, all = 0;
  };
  Operand resolve(const ir::Graph& graph, int buffer) const;
  std::vector<Call> resolve(const ir::Graph& graph, const ir::Segment& segment) const;
  std::vector<Columns> columns_of_roots() const;
  const std::vector<Call>& calls(const ir::Segment& segment) const;
  at::Tensor tensor(const Operand& operand, bool output, MicroBatchState& state, WorkingParameters& working,
                    const RunKey& key) const;

  const ir::StageCode& stage_;
  int position_;
  DType state_dtype_;
  at::Device device_;
  size_t roots_ = 0;
  std::vector<Columns> columns_;                            // by buffer
  std::vector<Call> forward_, backward_, weight_, joined_;  // by instruction
};

}  // namespace switchyard::runtime
