// Parameters over ranks: which rank holds which box of which parameter under a strategy, and at home.
#pragma once

#include <vector>

#include "config/strategy.hpp"
#include "ir/code.hpp"
#include "layout/layout.hpp"
#include "switching/plan.hpp"

namespace switchyard::compiler {

/// A parameter on the ranks of a stage. used: what code reads, copies on all replicas. stored: what lies there between
/// runs: the same, or rows of it, cut by the stage's layout::RowCuts. made: gradients as a run leaves them, partials,
/// one for each place outside the code and on each axis of the code over which the gradient is partial. grad: gradients
/// as they add up: the same, or rows of their sum over the axes of such cuts. These fall on single rows of the local
/// block. Sources: arXiv 1910.02054, 2502.08145.
struct Placed {
  layout::ShardMap used, stored, made, grad;
};
Placed placed(const layout::Shape& shape, const config::Stage& stage, const ir::StageCode& code,
              const ir::ParamUse& use);

/// Per parameter (graph order), over all stages: used and stored are copies; made and grad have partials of their own
/// for each stage, as those that share a tied weight.
struct ParamMaps {
  std::vector<layout::ShardMap> used, stored, made, grad;
};

/// The maps of a compiled strategy.
ParamMaps param_maps(const ir::Graph& graph, const config::Strategy& strategy,
                     const std::vector<ir::GroupCode>& groups);

/// One owner per element among the ranks that store it under the anchor: its gradient is summed there, and this rank
/// saves it.
std::vector<layout::ShardMap> owner_maps(const ParamMaps& anchor);

/// Home of master weights, moments and summed gradients: the owners (ZeRO-1), or with zero = 0 every rank that stores
/// an element.
std::vector<layout::ShardMap> home_maps(const ParamMaps& anchor, int zero);

/// Parameters that move together: those of each unit, in graph order.
std::vector<switching::UnitMaps> unit_maps(const ir::Graph& graph);

/// Mesh of a stage over global ranks: the axes outside the code, then those of the code.
layout::Mesh stage_mesh(const config::Stage& stage, const layout::Mesh& replica);

}  // namespace switchyard::compiler
