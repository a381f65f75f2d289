// Parameters over ranks: which rank holds which box of which parameter under a strategy, and at home.
#pragma once

#include <vector>

#include "config/strategy.hpp"
#include "ir/code.hpp"
#include "layout/layout.hpp"
#include "switching/plan.hpp"

namespace switchyard::compiler {

/// Per parameter (graph order). used: copies on all replicas and stages that use it. grad: partials, one per
/// data-parallel rank, per replica axis over which the gradient is partial, and per further use of a tied weight.
struct ParamMaps {
  std::vector<layout::ShardMap> used, grad;
};

/// The maps of a compiled strategy.
ParamMaps param_maps(const ir::Graph& graph, const config::Strategy& strategy,
                     const std::vector<ir::GroupCode>& groups);

/// One owner per element among the ranks that use it under the anchor: its gradient is summed there, and this rank
/// saves it.
std::vector<layout::ShardMap> owner_maps(const ParamMaps& anchor);

/// Home of master weights, moments and summed gradients: the owners (ZeRO-1), or with zero = 0 every rank that uses an
/// element.
std::vector<layout::ShardMap> home_maps(const ParamMaps& anchor, int zero);

/// Parameters that move together: those of each unit, in graph order.
std::vector<switching::UnitMaps> unit_maps(const ir::Graph& graph);

/// Mesh of a stage over global ranks: axis "data", then the replica's axes.
layout::Mesh stage_mesh(const config::Stage& stage, const layout::Mesh& replica);

}  // namespace switchyard::compiler
