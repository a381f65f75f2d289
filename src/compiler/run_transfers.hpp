// What the ranks of a stage pass to one another for single runs, where their copies are cut by rows (depth,
// ZeRO-2 and 3).
#pragma once

#include <vector>

#include "compiler/placement.hpp"

namespace switchyard::compiler {

/// One unit's in a stage, for the ranks of replicas that go in step. gather: what each stores, to all copies that runs
/// read; no rounds where parameters are not cut. reduce: gradients of a run, to the owners of their rows; no rounds
/// where gradients are not cut.
struct RunTransfers {
  int unit = 0;
  switching::SharedRounds gather, reduce;
};
/// [group][replicas in step][stage]: units in their order; none where nothing is cut.
using TransfersOfStages = std::vector<std::vector<std::vector<std::vector<RunTransfers>>>>;

/// Plans and verifies the transfers of all stages; those that differ in names only share their messages.
TransfersOfStages run_transfers(const ir::Graph& graph, const config::Strategy& strategy,
                                const std::vector<ir::GroupCode>& groups, const cluster::Cluster& cluster,
                                switching::Planner planner);

}  // namespace switchyard::compiler
