// The load of a micro-batch on the slowest of its ring ranks.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "batch/ring_assignment.hpp"
#include "batch/step_plan.hpp"
#include "cluster/cluster.hpp"
#include "compiler/ring_keys.hpp"
#include "planner/replicas.hpp"
#include "planner/space.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Refers to the costs.
class RingLoads {
 public:
  explicit RingLoads(const UnitCosts& units) : units_(units), cluster_(units.hardware().placement()) {}
  /// For the batch planner: the ring ranks of each pipeline. What they take is what a single rank does, divided by the
  /// ranks of the code: so all meshes of as many ranks have the same assignments.
  const batch::Ring& ring(const Placement& placement) const;
  /// The load of the slowest rank, for a micro-batch that is assigned to ring ranks: tokens and pairs of the rank with
  /// most work by nominal rates, even shares at least, and what passing keys on takes, as the simulator computes it for
  /// the first ranks. Placements with as many code ranks, ring ranks and columns have the same.
  PackedSequence assigned(const batch::MicroBatch& micro_batch, const Placement& placement) const;
  /// Columns of keys that a rank passes on.
  i64 columns(const Placement& placement) const;
  /// The load of a ring rank, for a micro-batch that isn't assigned yet: an even share with nothing passed on, which no
  /// assignment is quicker than.
  static PackedSequence even(const batch::MicroBatch& micro_batch, int ring);
  /// Seconds that no assignment of a micro-batch is quicker than, if it has a document of so many tokens. least:
  /// seconds of a token and of a pair at least, and of what is passed on; even: seconds of even shares.
  double least(const Placement& placement, i64 tokens, const Spent& least, double even) const;
  /// About the most that a ring rank has of a micro-batch of `capacity` tokens: a 32nd more than an even share, and
  /// keys of two ranks, as where they come in steps.
  static ir::CallSize size(const Placement& placement, i64 capacity, i64 longest);

 private:
  /// The least seconds of a message.
  double latency() const;
  compiler::RingKeys passed_on(const batch::MicroBatch& micro_batch, const Placement& placement) const;
  const UnitCosts& units_;
  cluster::Cluster cluster_;
  std::shared_ptr<batch::KnownLoads> known_ = std::make_shared<batch::KnownLoads>();
  mutable std::map<std::pair<int, int>, batch::Ring> rings_;  // by ring ranks, and ranks of the code
};

/// The mesh for which a run of the micro-batch is timed: that of the code, with a ring where keys are passed on.
StageMesh timed_mesh(const Placement& placement, const PackedSequence& micro_batch);

}  // namespace switchyard::planner
