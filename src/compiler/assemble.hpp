// Assembling: from compiled strategies and a batch plan to the Program of one step. Table work only; every rank does
// the same and gets the same tasks.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "batch/step_plan.hpp"
#include "compiler/compile.hpp"
#include "compiler/placement.hpp"
#include "compiler/residuals.hpp"
#include "compiler/round_parts.hpp"
#include "compiler/run_transfers.hpp"
#include "ir/program.hpp"
#include "switching/plan.hpp"

namespace switchyard::compiler {

/// A pipeline of a strategy: replica `index` of group `group`.
struct Replica {
  int group = 0, index = 0;
};

/// A rank's place among those that run a stage of a replica: its ring rank, and its position in the code; -1: none.
struct RunPlace {
  int ring = 0, position = -1;
};

/// Cost of a segment on its slowest position. bytes_waited_per_token: those of its collectives under which a nominal
/// device computes nothing; 0 where gradients aren't split, or micro-batches are paired.
struct SegmentCost {
  double flops_per_token = 0, flops_per_pair = 0, bytes_per_token = 0, bytes_per_pair = 0, bytes_fixed = 0,
         bytes_waited_per_token = 0;

  /// Floating-point operations and bytes for a micro-batch of T tokens with so many query-key pairs.
  double flops(double T, double pairs) const { return flops_per_token * T + flops_per_pair * pairs; }
  double bytes(double T, double pairs) const { return bytes_per_token * T + bytes_per_pair * pairs + bytes_fixed; }

  SegmentCost& operator+=(const SegmentCost& other);
  friend SegmentCost operator*(int times, const SegmentCost& one);
};

/// joined: of both kinds of gradients at once, if the stage joins them.
struct StageCost {
  SegmentCost forward{}, backward{}, weight{}, joined{};
  DType compute = DType::f32;
  bool joins() const { return joined.flops_per_token > 0; }
  const SegmentCost& of(Pass pass) const {
    return pass == Pass::F ? forward : pass == Pass::W ? weight : pass == Pass::BW && joins() ? joined : backward;
  }

  StageCost& operator+=(const StageCost& other);
  friend StageCost operator*(int times, const StageCost& one);
};
StageCost cost_of(const ir::StageCode& stage);

/// A strategy, compiled and placed.
struct CompiledStrategy {
  config::Strategy strategy;
  std::vector<ir::GroupCode> groups;
  std::vector<Replica> replicas;
  ParamMaps maps;
  std::vector<std::vector<StageCost>> cost;  // [group][stage]
  i64 multiple = 1;                          // T is a multiple of it
  /// The ranks of a replica's stage: of all ring ranks, one after the other; of one ring rank, by position.
  std::vector<int> replica_ranks(int replica, int stage) const;
  std::vector<int> code_ranks(int replica, int stage, int ring) const;
  int ring_ranks(int replica) const;
  /// The ranks of all ring ranks that have a position of the code.
  std::vector<int> ring_peers(int replica, int stage, int position) const;
  RunPlace place_of(int replica, int stage, int rank) const;

 private:
  std::span<const int> ranks_of(int replica, int stage) const;
};

/// Strategies that several owners share, as a range of const CompiledStrategy&. No standard view: clang 14 can't
/// compile those of its library.
class Strategies {
 public:
  using Pointers = std::vector<std::shared_ptr<const CompiledStrategy>>;
  class Iterator {
   public:
    using value_type = CompiledStrategy;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(Pointers::const_iterator at) : at_(at) {}
    const CompiledStrategy& operator*() const { return **at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return Iterator(at_++); }
    bool operator==(const Iterator&) const = default;

   private:
    Pointers::const_iterator at_;
  };
  explicit Strategies(const Pointers& all) : all_(&all) {}
  size_t size() const { return all_->size(); }
  const CompiledStrategy& operator[](size_t i) const { return *(*all_)[i]; }
  Iterator begin() const { return Iterator(all_->begin()); }
  Iterator end() const { return Iterator(all_->end()); }

 private:
  const Pointers* all_;
};

/// A model on the ranks of a cluster, which compiles each strategy once, however many plans use it. Thread-safe.
class CompiledModel {
 public:
  /// `graph` is differentiated, or has only the forward pass to be evaluated.
  CompiledModel(ir::Graph graph, cluster::Cluster cluster, const CodeOptions& how = {});

  const ir::Graph& graph() const { return graph_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  const CodeOptions& how() const { return how_; }
  std::shared_ptr<const CompiledStrategy> compiled(const config::Strategy& strategy) const;

 private:
  ir::Graph graph_;
  cluster::Cluster cluster_;
  CodeOptions how_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const CompiledStrategy>> known_;
};

/// The common state of all steps of a job: one model, many strategies, one home.
class Plans {
 public:
  /// home_anchor indexes `strategies`: where that uses the parameters is home, once or (zero = 0) every copy of what it
  /// stores. longest_document: tokens; 0: not known.
  Plans(std::shared_ptr<const CompiledModel> model, const std::vector<config::Strategy>& strategies, int home_anchor,
        switching::Planner planner, i64 longest_document = 0);
  /// Plans with a model of their own.
  Plans(ir::Graph graph, const std::vector<config::Strategy>& strategies, int home_anchor, cluster::Cluster cluster,
        switching::Planner planner, const CodeOptions& how = {});

  const ir::Graph& graph() const { return model_->graph(); }
  const cluster::Cluster& cluster() const { return model_->cluster(); }
  const CodeOptions& how() const { return model_->how(); }
  Strategies strategies() const { return Strategies(strategies_); }
  i64 longest_document() const { return longest_document_; }
  const std::vector<layout::ShardMap>& home() const { return home_; }
  /// The strategy whose parameters lie where home is.
  const CompiledStrategy& anchor() const { return *strategies_[static_cast<size_t>(anchor_)]; }
  /// The part of home that has every element once.
  const std::vector<layout::ShardMap>& owners() const { return owners_; }
  /// The gradients of a strategy to their owners; no units in a graph without a backward pass.
  const switching::MovePlan& reduction(int strategy) const { return reductions_[static_cast<size_t>(strategy)]; }
  /// Transfers of a strategy's stages for single runs (depth, ZeRO-2, 3).
  const TransfersOfStages& of_runs(int strategy) const { return of_runs_[static_cast<size_t>(strategy)]; }
  /// Summed gradients from their owners to home's other copies; no units where home has every element once, or without
  /// a backward pass.
  const switching::MovePlan& broadcast() const { return broadcast_; }
  /// By rank: the error feedback that it keeps of its gradients.
  const std::vector<std::vector<Residual>>& residuals() const { return residuals_; }
  const std::vector<switching::UnitMaps>& units() const { return units_; }
  /// Moves to strategy `to` from the copies of `from` (-1: none) and home's compute copy. Planned at first use.
  /// Thread-safe.
  const switching::MovePlan& moves(int from, int to) const;
  /// A round of these moves, reductions, transfers of runs or broadcasts as transactions, found at first use.
  /// Thread-safe.
  const std::vector<RoundPart>& transactions(const layout::MessageList& round) const {
    return parts_->of(round.pattern());
  }

 private:
  std::shared_ptr<const CompiledModel> model_;
  switching::Planner planner_;
  int anchor_;
  i64 longest_document_;
  Strategies::Pointers strategies_;
  std::vector<layout::ShardMap> owners_, home_;
  std::vector<switching::UnitMaps> units_;
  std::vector<switching::MovePlan> reductions_;   // by strategy
  std::vector<TransfersOfStages> of_runs_;        // by strategy
  std::vector<std::vector<Residual>> residuals_;  // by rank
  switching::MovePlan broadcast_;
  mutable std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // guards moves_
  mutable std::map<std::pair<int, int>, switching::MovePlan> moves_;
  std::unique_ptr<KnownParts> parts_ = std::make_unique<KnownParts>();
};

inline constexpr int kAllUnits = 1 << 30;

/// prefetch_units: so many units, in order of use, move to the next strategy while the running one computes; the others
/// after its last task on the rank. With 0 a strategy's gradients are reduced before the next one computes. train: with
/// backward segments, reductions and update; else forward only (evaluation).
struct AssembleOptions {
  int prefetch_units = kAllUnits;
  bool train = true;
};
ir::Program assemble(const batch::StepPlan& plan, const Plans& plans, const AssembleOptions& options);

}  // namespace switchyard::compiler
