// Time that a task of a Program takes by itself, and the devices and ports that it uses.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "batch/step_plan.hpp"
#include "cluster/hardware.hpp"
#include "compiler/assemble.hpp"
#include "cost/exchange.hpp"
#include "simulator/measured_step.hpp"
#include "simulator/segment_times.hpp"
#include "simulator/shared_resources.hpp"

namespace switchyard::simulator {

/// A segment on the ranks of a replica, for the micro-batches of so many tokens. All claims are on the same resources.
struct ReplicaSegment {
  const SegmentTimes* times = nullptr;
  std::vector<Claim> computing;
  std::vector<std::vector<Claim>> exchanging;  // one list for each of times->exchanges
  // While the replica computes beside an exchange: both take `slowdown` of the time that they would take by themselves.
  std::vector<std::vector<Claim>> both{};
  std::vector<double> slowdown{};
};

/// Use of devices and ports by ranks that transfer.
struct Use {
  std::vector<double> devices{};  // share of each rank
  std::vector<cost::Exchange::PortShare> ports{};
  int first_host = 0;  // first host of the ranks that it was made for
};
struct TimedSegment {
  SegmentTimes times;
  std::vector<Use> uses;  // one for each of its exchanges
};

/// Times of segments, which simulations of the same model on the same hardware share. Thread-safe.
class KnownSegments {
 public:
  /// A piece of a segment, its ranks by their places (as TaskWork counts them), and the tokens of a micro-batch.
  struct Key {
    const ir::StageCode* stage = nullptr;
    Pass pass = Pass::F;
    int piece = ir::kWhole;
    std::vector<int> places;
    auto operator<=>(const Key&) const = default;
  };
  /// Made with make() if it is not known; lives as long as this.
  const SegmentTimer& timer(const Key& key, const std::function<SegmentTimer()>& make);
  const TimedSegment& times(const Key& key, i64 tokens, const std::function<TimedSegment()>& make);

 private:
  template <class Index, class Value>
  const Value& known(std::map<Index, Value>& all, const Index& key, const std::function<Value()>& make);

  std::mutex mutex_;
  std::map<Key, SegmentTimer> timers_;
  std::map<std::pair<Key, i64>, TimedSegment> times_;
};

/// Seconds of a task that is no run, and its claims on resources.
struct PlacedWork {
  double seconds = 0;
  std::vector<Claim> claims;
};

/// Computes what is equal once: segments of replicas with the same placement on hosts, transfers of the same messages.
/// Returned references are valid as long as this object. Resources are numbered: ranks, ports of each device (by link
/// and direction), hosts. Refers to the plans and the hardware.
class TaskWork {
 public:
  /// measured: what computing took in such a step; null: it is predicted.
  /// InternalError if the hardware has other ranks than the plans.
  TaskWork(const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware,
           KnownSegments& known, const MeasuredStep* measured = nullptr);
  /// The kind of each resource; resources of one kind may stand for one another.
  std::vector<int> kinds_of_resources() const;
  /// The segment that a run executes, on the ranks of its replica.
  const ReplicaSegment& segment(const ir::Task& run);
  const batch::MicroBatch& micro_batch(const ir::Task& run) const;
  /// The documents of the ring rank that a run's segment has the times of: the one that takes longest.
  const std::vector<batch::Piece>& shard(const ir::Task& run);
  /// Whether runs of the task's stage make gradients of their own (depth, ZeRO-2, 3), or add to those of the strategy.
  bool makes_own_gradients(const ir::Task& t) const { return stage_of(t).reduces() && t.micro_batch() >= 0; }
  /// The gradients that a run or zero-fill adds to: the accumulators of a replica's stage, or what the runs of a block
  /// make of their own with a piece (else: first micro-batch and piece -1).
  struct Accumulators {
    int phase = 0, replica = 0, stage = 0, first = -1, piece = -1;
    Pass pass = Pass::W;
    auto operator<=>(const Accumulators&) const = default;
  };
  Accumulators accumulators_of(const ir::Task& t) const;
  /// Seconds in which the accumulators of a run's stage, or the gradients that its piece begins, are filled with zeros.
  double zeroing(const ir::Task& run) const;
  /// The work of a task that is no run.
  const PlacedWork& work(const ir::Task& id);

 private:
  // A task's seconds, and what it uses; without a use it takes all of its devices.
  struct Work {
    double seconds = 0;
    std::optional<Use> use{};
  };

  std::vector<Claim> claims_of(const ir::Task& t, const Work& needed) const;
  int number_of(const ir::Task& t, const Use& use, cost::Port port) const;
  int number_of(const cost::Port& port) const;
  int number_of_host(int host) const;
  const compiler::CompiledStrategy& strategy_of(const ir::Task& t) const;
  const ir::StageCode& stage_of(const ir::Task& t) const;
  std::vector<int> places_of(const std::vector<int>& ranks) const;
  ReplicaSegment placed(const ir::Task& t, const TimedSegment& timed) const;
  const TimedSegment& times_of(const ir::Task& t);
  SegmentTimer timer_of(const ir::Task& t, const std::vector<int>& ranks) const;
  // Ring ranks wait for one another in each attention, so the times are those of the slowest.
  struct RingSegment {
    int slowest = 0;
    TimedSegment timed{};
  };
  const RingSegment& on_ring(const ir::Task& t);
  const Work& transfer_of(const ir::Task& t);
  Work fresh_work(const ir::Task& t) const;
  Work exchanged(const ir::Task& t, bool summed) const;
  double coding(const ir::Task& t) const;
  Use use_of(const cost::Exchange& exchange, const std::vector<int>& ranks) const;
  double memory_time(const char* name, DType type, const std::map<int, i64>& elements, i64 bytes) const;
  void add_elements(const std::vector<layout::ShardMap>& maps, int unit, std::map<int, i64>& elements) const;
  double squared() const;
  double agreed(const ir::Task& t) const;
  double updated(const ir::Task& t) const;
  double copied(const ir::Task& t) const;
  double within_ranks(const ir::Task& t, const char* operation, DType type, i64 bytes) const;
  double zeroing_of(const ir::Task& t) const;

  double computed(const ir::Task& t, double predicted) const;
  std::vector<std::vector<int>> equal_ranks(const ir::Task& run, const Piece& piece) const;
  TimedSegment as_measured(const ir::Task& run, TimedSegment timed) const;

  const batch::StepPlan& plan_;
  const compiler::Plans& plans_;
  const cluster::Hardware& hardware_;
  const MeasuredStep* const measured_;
  // Phase, replica, stage, pass, piece, tokens; of several ring ranks: -1 - the micro-batch.
  using SegmentKey = std::tuple<int, int, int, Pass, int, i64>;
  SegmentKey segment_key(const ir::Task& t) const;
  std::map<SegmentKey, ReplicaSegment> segments_;
  std::deque<std::pair<TimedSegment, ReplicaSegment>> measured_segments_;
  std::map<SegmentKey, RingSegment> ring_segments_;
  std::map<std::tuple<const ir::StageCode*, Pass, int, std::vector<int>>, std::optional<SegmentTimer>>
      ring_timers_;                                // piece, ranks of the code
  using RingKey = std::tuple<int, int, int, int>;  // phase, replica, stage, micro-batch
  static RingKey ring_of(const ir::Task& run);
  std::map<RingKey, TimedKeys> ring_keys_;
  KnownSegments& known_;
  std::map<std::tuple<ir::TaskKind, codecs::Rule, const layout::MessagePattern*, std::vector<int>>, Work>
      transfers_;  // messages, places
  std::map<std::tuple<ir::TaskKind, codecs::Rule, const layout::MessagePattern*, const std::vector<int>*>, PlacedWork>
      placed_;  // messages, names
  std::deque<PlacedWork> others_;
  mutable std::map<std::tuple<const ir::StageCode*, Pass, int>, double> zeroed_;  // piece
  mutable std::map<std::tuple<int, int, const layout::MessagePattern*>, double>
      copied_;  // by an allocation's strategies and first round
};

}  // namespace switchyard::simulator
