// The planner's model of a phase: what a strategy takes for the documents of a range of lengths, and what memory.
#pragma once

#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "planner/replicas.hpp"
#include "planner/space.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Documents longer than bounds[lo - 1] (lo = 0: all) and up to bounds[hi - 1]: of the ranges between neighbouring
/// bounds lo ... hi - 1.
struct Range {
  int lo = 0, hi = 0;
  auto operator<=>(const Range&) const = default;
};

/// bounds: possible longest documents of buckets, rising. steps: lengths of the documents of steps that stand for all;
/// times are means.
struct Workload {
  std::vector<i64> bounds;
  std::vector<std::vector<i64>> steps;
};

/// How a phase spends its time, means over ranks: compute + communication + idle is the phase.
struct PhaseParts {
  double seconds = 0, compute = 0, communication = 0, idle = 0;
};

/// Bytes of the rank with the highest peak, but for home. At home a rank has `home` bytes besides.
struct MemoryNeed {
  i64 parameters = 0, gradients = 0, activations = 0;
  i64 total() const { return parameters + gradients + activations; }
};

/// Most activations of a micro-batch and chunk that a stage keeps at a time, of so many micro-batches.
int most_kept(const Shape& shape, int stage, int micro_batches);

class CostModel {
 public:
  /// errors  UserError if a document is longer than the last bound
  CostModel(const UnitCosts& units, Workload workload);

  /// Whether the range has documents.
  bool any(Range range) const { return total_[slot(range)].documents > 0; }
  const std::vector<i64>& bounds() const { return workload_.bounds; }
  i64 longest(Range range) const { return workload_.bounds[static_cast<size_t>(range.hi - 1)]; }

  /// Never above seconds(), from sums over the range alone. rough: of the placement's degrees, without tables of
  /// recomputation and of the capacity; layers: of the degrees, without embedding and head.
  double rough_bound(const Placement& placement, Range range) const;
  double layers_bound(const Placement& placement, config::Recompute recompute, i64 capacity, Range range) const;
  double bound(const Shape& shape, i64 capacity, Range range) const;
  /// Closer, from the micro-batches into which a step packs the documents.
  double micro_batches_bound(const Shape& shape, i64 capacity, Range range) const;
  /// The documents packed as a step packs them, the schedule of every pipeline replayed; the slowest pipeline, mean
  /// over the steps.
  double seconds(const Shape& shape, i64 capacity, Range range) const { return parts(shape, capacity, range).seconds; }
  /// Times of pipelines that are known, by step and in the order of the steps' pipelines; below 0: not yet.
  using ReplicaTimes = std::vector<std::vector<double>>;
  /// seconds(), or where it is known to be above `most` what it is at least: pipelines with most work are looked at
  /// first, and no further than needed. known: of the same shape, capacity and range; empty at first.
  double seconds_up_to(double most, ReplicaTimes& known, const Shape& shape, i64 capacity, Range range) const;
  PhaseParts parts(const Shape& shape, i64 capacity, Range range) const;

  /// Of micro-batches full to the capacity, as many at a time as the schedule ever keeps of the steps' micro-batches
  /// (1f1b: of any number, its least).
  MemoryNeed need(const Shape& shape, i64 capacity, Range range) const;
  /// Never above it, without packing documents.
  MemoryNeed least_need(const Shape& shape, i64 capacity, Range range) const;
  /// State of a rank at home: master weights, moments, summed gradients, and their compute copy in the precision of
  /// computing.
  i64 home_bytes(const Home& home) const;
  /// Never above home_bytes of any home on the ranks.
  i64 least_home_bytes() const;

  const UnitCosts& units() const { return units_; }

 private:
  struct Sums {
    i64 documents = 0, tokens = 0, longest = 0, shortest = 0;
    double attention_pairs = 0;
  };
  /// A position of the pipeline.
  struct Position {
    StageKind kind = StageKind::whole;
    int layers = 0;
    bool operator==(const Position&) const = default;
  };
  /// Stages from `first` on that are alike: their positions in order of chunks.
  struct StageRun {
    int first = 0, count = 0;
    std::vector<Position> positions;
    Parts all, begin, end;  // of all positions, of the first and the last one
  };
  struct Pipeline {
    std::vector<Position> positions;
    std::vector<StageRun> runs;
    Parts all;
  };
  /// From each position to the next one: on the same host, across hosts, or nothing as it is the same stage; and how
  /// many of the sends up to a position are inside and across hosts.
  enum class Hop { inside, across, none };
  struct Sends {
    double inside = 0, across = 0;  // seconds of one
  };
  struct Hops {
    std::vector<Hop> to_next;
    std::vector<int> inside = {0}, across = {0};
    double sum(int from, int to, const Sends& of_micro_batch) const;
  };
  /// Of a stage: elements of parameters; bytes that a micro-batch keeps, and the most while it is worked on.
  struct StageMemory {
    i64 elements = 0, stash = 0, peak = 0;
  };
  /// What the micro-batches of a pipeline take in a stage of one layer, by kind.
  using ByKind = std::array<double, kStageKinds>;
  struct Gradients {
    ByKind all{}, first{}, last{};            // both at once: of all micro-batches, of the first and the last one
    std::optional<ByKind> first_of_inputs{};  // of split gradients
  };
  struct Replica {
    std::vector<PackedSequence> micro_batches{};
    int first = 0, count = 1;                             // pipelines that have such micro-batches, one after the other
    bool heavy = true;                                    // bounds count it: one of those with most work
    ByKind forward{}, most_forward{}, first_forward{};    // of all micro-batches, of the slowest one, of the first one
    std::array<std::optional<Gradients>, 3> gradients{};  // by recomputation
  };
  using Replicas = std::vector<Replica>;
  size_t slot(Range range) const { return static_cast<size_t>(range.lo * (levels_ + 1) + range.hi); }
  const Pipeline& pipeline(const Placement& placement) const;
  double work(const Spent& least, const Spent& filled, double micro_batch, const Sums& sums, int dp) const;
  i64 filled_micro_batch(const Sums& sums, int dp, i64 capacity) const;
  double step_bound(const Shape& shape, i64 capacity, const Sums& sums) const;
  std::vector<Replicas>& replicas(const Placement& placement, i64 capacity, Range range) const;
  static void mark_heavy(Replicas& replicas);
  Replicas packed(const std::vector<i64>& lengths, const Placement& placement, i64 capacity, Range range) const;
  ByKind sum_over(const Placement& placement, std::span<const PackedSequence> micro_batches,
                  config::Recompute recompute, ir::Pass pass, ByKind* most = nullptr) const;
  const Gradients& gradients(const Shape& shape, Replica& replica) const;
  double once(const Shape& shape, const Parts& parts, ir::Pass pass, const PackedSequence& micro_batch) const;
  double send(int tp, bool crosses, i64 T) const;
  const Hops& hops(const Placement& placement) const;
  double replica_bound(const Shape& shape, Replica& replica, const Pipeline& pipeline, const Hops& hops) const;
  double shared_bound(const Shape& shape, const Replicas& replicas) const;
  Spent spent_by(const Shape& shape, const std::vector<PackedSequence>& micro_batches,
                 std::initializer_list<ir::Pass> passes) const;
  Spent spent_by(const Shape& shape, const std::vector<PackedSequence>& micro_batches) const;
  double replica_seconds(const Shape& shape, const std::vector<PackedSequence>& micro_batches, PhaseParts& spent) const;
  std::vector<std::vector<StageTime>> stage_times(const Shape& shape,
                                                  const std::vector<PackedSequence>& micro_batches) const;
  PhaseParts shared_parts(const Shape& shape, const Replicas& replicas) const;
  std::vector<std::vector<simulator::Claim>> host_claims(const Placement& placement, int replica) const;
  StageTime stage_time(const Shape& shape, const Position& position, const PackedSequence& micro_batch) const;
  schedule::Schedule schedule_of(const Shape& shape, const std::vector<PackedSequence>& micro_batches) const;
  MemoryNeed need_of(const Shape& shape, const Pipeline& pipeline, const std::vector<StageMemory>& memory, i64 capacity,
                     int micro_batches, bool least) const;
  const std::vector<StageMemory>& memory_of(const Pipeline& pipeline, const Shape& shape, i64 capacity,
                                            i64 longest) const;

  const UnitCosts& units_;
  double speedup_;  // of devices that compute while the others of their host rest
  Workload workload_;
  int levels_;
  std::vector<Sums> total_;              // by slot
  std::vector<std::vector<Sums>> sums_;  // by slot, of each step
  mutable std::map<std::tuple<int, int, int, schedule::Placement>, Pipeline>
      pipelines_;  // by stages, layers for the head, chunks, path
  mutable std::map<std::tuple<int, int, int, i64, Range>, std::vector<Replicas>> replicas_;
  // By pipeline, tensor ranks, recomputation, split gradients, capacity, longest document.
  mutable std::map<std::tuple<const Pipeline*, int, config::Recompute, bool, i64, i64>, std::vector<StageMemory>>
      memory_;
  mutable std::map<int, Spent> rough_;
  mutable std::map<Home, i64> home_bytes_;
  mutable std::map<Placement, Hops> hops_;
  mutable std::unordered_map<i64, double> sends_;  // by tokens, tensor ranks, and whether hosts are crossed
};

}  // namespace switchyard::planner
