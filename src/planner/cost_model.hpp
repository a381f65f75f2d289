// The planner's model of a phase: time and memory of a strategy for the documents of a range of lengths.
#pragma once

#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "planner/packings.hpp"
#include "planner/replicas.hpp"
#include "planner/space.hpp"
#include "planner/transfers.hpp"
#include "planner/unit_costs.hpp"
#include "planner/workload.hpp"

namespace switchyard::planner {

/// How a phase spends its time, means over ranks: seconds = compute + communication + idle.
struct PhaseParts {
  double seconds = 0, compute = 0, communication = 0, idle = 0;
};

/// Bytes of the rank with the highest peak, without home.
struct MemoryNeed {
  i64 parameters = 0, gradients = 0, activations = 0;
  i64 total() const { return parameters + gradients + activations; }
};

/// The largest number of activations, each of one micro-batch and chunk, that a stage keeps at a time, with
/// `micro_batches` micro-batches.
int most_kept(const Shape& shape, int stage, int micro_batches);

class CostModel {
 public:
  /// errors  UserError if a document is longer than the last bound
  CostModel(const UnitCosts& units, const Transfers& transfers, Workload workload);

  /// Whether the range has documents.
  bool any(Range range) const { return total_[slot(range)].documents > 0; }
  i64 documents(Range range) const { return total_[slot(range)].documents; }
  i64 tokens(Range range) const { return total_[slot(range)].tokens; }
  const std::vector<i64>& bounds() const { return workload_.bounds; }
  i64 longest(Range range) const { return workload_.longest(range); }

  /// Lower bounds on seconds(), from sums over the range alone. rough: depends on dp, pp and, where UnitCosts knows how
  /// times grow, on a stage's number of ranks alone (otherwise on their mesh); layers: on dp, pp, mesh, zero and the
  /// shape's code() alone, without embedding and head, with or without what runs transfer, which takes longer to find.
  double rough_bound(const Placement& placement, Range range) const;
  double layers_bound(const Shape& shape, i64 capacity, Range range, bool with_transfers = true) const;
  /// Tighter ones than layers_bound(), from the micro-batches into which a step packs the documents: for the shape with
  /// the layouts of layers (chunks, their path, layers for the head) that others of its dp, pp and mesh have, whatever
  /// the order and schedule.
  std::vector<double> packed_layers_bounds(const Shape& shape, std::span<const Shape* const> layouts, i64 capacity,
                                           Range range, bool transfers = true) const;
  /// A tighter bound, from the micro-batches into which a step packs the documents.
  double micro_batches_bound(const Shape& shape, i64 capacity, Range range) const;
  /// Seconds of the slowest pipeline, mean over the steps: documents are packed as a step packs them, and every
  /// pipeline's schedule is replayed.
  double seconds(const Shape& shape, i64 capacity, Range range) const { return parts(shape, capacity, range).seconds; }
  /// Times of pipelines by step, as Packings::Apart numbers them; below 0: not yet known.
  using ReplicaTimes = std::vector<std::vector<double>>;
  /// seconds(), or a lower bound on it that is above `most`: pipelines with most work are timed first, and no more than
  /// needed. known: of the same shape, capacity and range; empty at first.
  double seconds_up_to(double most, ReplicaTimes& known, const Shape& shape, i64 capacity, Range range) const;
  PhaseParts parts(const Shape& shape, i64 capacity, Range range) const;
  /// Seconds of a stage's last backward pass, in which its gradients become complete: of a mean micro-batch, where all
  /// are as small as they may be, so that all candidates of a placement have the same.
  double last_backward(const Placement& placement, Range range) const;

  /// Memory with rotary tables and micro-batches full to the capacity, as many at a time as the schedule keeps of any
  /// step's micro-batches (1F1B: as for any number of them). Where home is, on the range with the longest documents,
  /// parameters that it holds in the same shares aren't held twice.
  MemoryNeed need(const Shape& shape, i64 capacity, Range range) const;
  /// A lower bound on need(), without packing documents.
  MemoryNeed least_need(const Shape& shape, i64 capacity, Range range) const;
  /// A lower bound on least_need() with any number of micro-batches, which no larger capacity makes smaller.
  MemoryNeed need_of_one(const Shape& shape, i64 capacity, Range range) const;
  /// A lower bound on need() of every shape with the same dp, mesh, pp and zero, from the number of parameters alone.
  i64 least_weights(const Placement& placement, Range range) const;
  /// Bytes of a rank's state at home: master weights, moments, summed gradients, and the compute copy in compute
  /// precision.
  i64 home_bytes(const Home& home) const;
  /// A lower bound on home_bytes of every home on these ranks.
  i64 least_home_bytes() const;

  const UnitCosts& units() const { return units_; }
  const Transfers& transfers() const { return transfers_; }

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
  /// `count` equal stages from `first` on: their positions in order of chunks.
  struct StageRun {
    int first = 0, count = 0;
    std::vector<Position> positions{};
    Parts all{}, begin{}, end{};  // all positions, the first and the last one
  };
  struct Pipeline {
    std::vector<Position> positions;
    std::vector<StageRun> runs;
    Parts all;
  };
  /// The hop from each position to the next one: inside a host, across hosts, or none (same stage); and the number of
  /// sends inside and across hosts up to each position.
  enum class Hop { inside, across, none };
  struct Sends {
    double inside = 0, across = 0;  // seconds of one
  };
  struct Hops {
    std::vector<Hop> to_next;
    std::vector<int> inside = {0}, across = {0};
    double sum(int from, int to, const Sends& of_micro_batch) const;
  };
  /// Memory of code, by kind of stage, of one layer: what a micro-batch keeps, and elements of parameters; those of a
  /// layer alone.
  struct CodeMemory {
    std::array<Kept, kStageKinds> kept{};
    std::array<i64, kStageKinds> elements{};
    i64 layer = 0;
  };
  /// Time of a pipeline's micro-batches in a stage of one layer, by kind of stage.
  using ByKind = std::array<double, kStageKinds>;
  struct Gradients {
    ByKind all{}, first{}, last{};  // all micro-batches; the first and the last one, inputs alone if split
  };
  /// Times of a pipeline's micro-batches, as bounds use them. forward: of all, of the slowest one, of the first one.
  struct Times {
    ByKind forward{}, most_forward{}, first_forward{};
    Gradients gradients{};
  };
  /// A pipeline, and what bounds know of it. Its times: of all micro-batches, of the slowest one, of the first one.
  struct Load {
    std::span<const PackedSequence> micro_batches;
    ByKind forward{}, most_forward{}, first_forward{};
    // By recomputation, and whether they are together, split, or split and partly joined.
    std::array<std::array<std::optional<Gradients>, 3>, 4> gradients{};
  };
  /// The replicas of a step, for bounds. timed: the same, but only heavy ones where those are enough.
  struct BoundedStep {
    const Replicas* timed;
    std::vector<Load> loads{};
  };
  size_t slot(Range range) const { return static_cast<size_t>(range.lo * (levels_ + 1) + range.hi); }
  const Pipeline& pipeline(const Placement& placement) const;
  double work(const Spent& least, const Spent& filled, i64 micro_batch, i64 capacity, const Sums& sums,
              const Placement& placement) const;
  double alone(const Spent& least, i64 tokens, const Placement& placement) const;
  i64 filled_micro_batch(const Sums& sums, int ring_ranks, i64 capacity) const;
  std::vector<BoundedStep>& bounded_steps(const Placement& placement, i64 capacity, Range range) const;
  ByKind sum_over(const Placement& placement, std::span<const PackedSequence> micro_batches,
                  config::Recompute recompute, Pass pass, i64 capacity, ByKind* most = nullptr) const;
  const Gradients& gradients(const Shape& shape, i64 capacity, Load& load) const;
  Times with_transfers(const Times& plain, const Shape& shape, size_t micro_batches, bool transfers_first) const;
  std::vector<Times> with_transfers(const Times& plain, const Shape& shape, size_t micro_batches) const;
  double pipeline_bound(const Shape& shape, const Times& times, std::span<const PackedSequence> micro_batches) const;
  double replica_bound(const Shape& shape, const std::vector<PackedSequence>& micro_batches) const;
  double once(const Shape& shape, const Parts& parts, Pass pass, const PackedSequence& micro_batch) const;
  Spent spent_on(const Shape& shape, const Parts& parts, Pass pass, const PackedSequence& micro_batch) const;
  double send(const Placement& placement, bool crosses, i64 T) const;
  const Hops& hops(const Placement& placement) const;
  static double stages_bound(const Pipeline& pipeline, bool splits_gradients, const Times& times);
  /// All that a pipeline's micro-batches may take at least: without transfers one, otherwise two.
  std::vector<Times> times_of(const Shape& shape, i64 capacity, Load& load, bool transfers = true) const;
  double shared_bound(const Shape& shape, const Replicas& replicas) const;
  Spent spent_by(const Shape& shape, const std::vector<PackedSequence>& micro_batches,
                 std::initializer_list<Pass> passes) const;
  Spent spent_by(const Shape& shape, const std::vector<PackedSequence>& micro_batches) const;
  double replica_seconds(const Shape& shape, const std::vector<PackedSequence>& micro_batches, PhaseParts& spent) const;
  std::vector<std::vector<StageTime>> stage_times(const Shape& shape,
                                                  const std::vector<PackedSequence>& micro_batches) const;
  PhaseParts shared_parts(const Shape& shape, const Replicas& replicas) const;
  PhaseParts parts_in_step(const Shape& shape, const Replicas& replicas, const Replicas& timed) const;
  std::vector<std::vector<simulator::Claim>> host_claims(const Placement& placement, int replica) const;
  /// How a run shares what its block gathers and reduces. runs: so many runs of a pass share it; one_copy: the
  /// gradients' runs gather nothing. first, last: nothing runs on the rank before or after it.
  struct OfBlock {
    int runs = 1;
    bool one_copy = false, first = false, last = false;
  };
  bool joins_gradients(const Shape& shape) const;
  StageTime stage_time(const Shape& shape, const Position& position, const PackedSequence& micro_batch,
                       const OfBlock& block) const;
  double with_transfers(const Shape& shape, const Position& position, Pass pass, const OfBlock& block,
                        const PackedSequence& micro_batch) const;
  schedule::Schedule schedule_of(const Shape& shape, const std::vector<PackedSequence>& micro_batches) const;
  MemoryNeed need_of(const Shape& shape, i64 capacity, Range range, int micro_batches, bool least) const;
  bool held_by_home(const Placement& placement, Range range) const;
  const CodeMemory& code_memory(const Shape& shape, i64 capacity, i64 longest) const;

  const UnitCosts& units_;
  const Transfers& transfers_;
  Codings sent_;    // between stages
  double speedup_;  // speedup of a device while the others of its host are idle
  Workload workload_;
  Packings packings_;
  int levels_;
  i64 tables_;                           // bytes
  i64 feeds_of_a_token_;                 // bytes
  std::vector<Sums> total_;              // by slot
  std::vector<std::vector<Sums>> sums_;  // by slot, of each step
  // By stages, layers for the head, chunks, path.
  mutable std::unordered_map<std::tuple<int, int, int, schedule::Placement>, Pipeline, TupleHash> pipelines_;
  // By pipelines, those that are tied, pp, capacity, ends of the range, the code's mesh, and ring ranks.
  using StepsKey = std::tuple<int, int, int, i64, int, int, std::uint64_t, int>;
  static StepsKey steps_key(const Placement& p, int tied, i64 capacity, Range range) {
    return {p.pipelines(), tied, p.pp, capacity, range.lo, range.hi, mesh_key(p.code_mesh()), p.ring()};
  }
  mutable std::unordered_map<StepsKey, double, TupleHash> last_backward_;
  mutable std::unordered_map<StepsKey, std::vector<BoundedStep>, TupleHash> bounded_steps_;
  // By mesh, recomputation, split gradients, whether there is one stage, capacity, longest document.
  mutable std::unordered_map<std::tuple<std::uint64_t, config::Recompute, bool, bool, i64, i64>, CodeMemory, TupleHash>
      memory_;
  mutable std::map<StageMesh, Spent> rough_;
  // By home's placement, and ranks that share its state.
  mutable std::unordered_map<decltype(std::tuple_cat(PlacementKey(), std::tuple(0))), i64, TupleHash> home_bytes_;
  mutable std::unordered_map<PlacementKey, Hops, TupleHash> hops_;
  mutable std::unordered_map<std::tuple<i64, int, int, bool>, double, TupleHash>
      sends_;  // by tokens, ranks of the code, ranks that send at once, and whether hosts are crossed
};

}  // namespace switchyard::planner
