// Transfers between the ranks of a stage for single runs, where their copies are cut by rows (depth,
// ZeRO-2 and 3).
#pragma once

#include <vector>

#include "compiler/placement.hpp"

namespace switchyard::compiler {

/// One unit's in a stage, for the ranks of replicas that go in step. gather: what each stores, to all copies that runs
/// read; no rounds where parameters are not cut. reduce: gradients of a run, to the owners of their rows; no rounds
/// where gradients are not cut, or the graph has no backward pass.
struct RunTransfers {
  int unit = 0;
  switching::SharedRounds gather, reduce;
};
/// A parameter of a unit on ranks that gather or reduce it among themselves: what they have, and what they are to have.
struct RunTensor {
  int param = 0;
  layout::ShardMap from, to;
};
/// A unit's gathers and reductions in a stage, on the ranks of replicas that go in step: each copy in the
/// stage, and each partial that stays apart from others, is a tensor by itself; but copies that several hosts share are
/// gathered as one. No rank has two tensors of a parameter.
struct RunTensors {
  std::vector<RunTensor> gathered, reduced;
};
RunTensors run_tensors(const ir::Graph& graph, int unit, const config::Stage& in_step, const ir::StageCode& code,
                       const cluster::Cluster& cluster);
/// A stage on the ranks of its n-th replicas that go in step.
config::Stage part_in_step(const config::Stage& stage, const ir::GroupCode& group, int part);

/// [group][replicas in step][stage]: units in their order; none where nothing is cut.
using TransfersOfStages = std::vector<std::vector<std::vector<std::vector<RunTransfers>>>>;

/// Plans and verifies the transfers of all stages; those that differ in names only share their messages.
TransfersOfStages run_transfers(const ir::Graph& graph, const config::Strategy& strategy,
                                const std::vector<ir::GroupCode>& groups, const cluster::Cluster& cluster,
                                switching::Planner planner);

}  // namespace switchyard::compiler
