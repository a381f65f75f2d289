// The graph compiler: one graph, any strategy -> Code. Layouts are propagated through the forward and backward pass at
// once, mismatches become reshards, recomputation clones calls into the backward pass.
#pragma once

#include "config/strategy.hpp"
#include "ir/code.hpp"

namespace switchyard::compiler {

/// Mesh of one replica of a stage: tp refined into axes so that whole axes cut every parameter that its units
/// [first_unit, end_unit) use (8 ranks with 4 key/value heads: tp/0 = 4, tp/1 = 2). UserError where cuts do not nest or
/// tp is above the key/value heads and no multiple.
layout::Mesh replica_mesh(const ir::Graph& graph, const config::Strategy& strategy, int tp, int first_unit,
                          int end_unit);

/// Layout in which a parameter is held on a replica mesh: the strategy's cuts if it names the parameter, else the usual
/// layout.
layout::Layout param_layout(const ir::Graph& graph, int param, const config::Strategy& strategy,
                            const layout::Mesh& replica);
/// The builder's dim over all axes that its pieces allow: every operator can compute with it.
layout::Layout usual_layout(const ir::Graph& graph, int param, const config::Strategy& strategy,
                            const layout::Mesh& replica);

/// Code of every group of a strategy. The graph is forward only (evaluation) or differentiated. Activations with role
/// "residual" are cut on tokens by all replica axes (sequence parallelism), or copied where the strategy turns that
/// off; between stages they are cut in any case (scatter and gather, arXiv 2104.04473, section 4.1). A parameter held
/// in cuts that its operators can't compute with is gathered into its usual layout in each segment that uses it, and
/// its gradient is accumulated in that layout. Reshards are the quickest for each replica as it lies on the cluster's
/// hosts (layout/exchange); no ranks: all are on one host.
std::vector<ir::GroupCode> compile(const ir::Graph& graph, const config::Strategy& strategy,
                                   const cluster::Cluster& cluster = {});

/// The different placements on hosts of replicas of `tp` ranks, one after the other.
std::vector<std::vector<int>> host_patterns(std::span<const int> ranks, int tp, const cluster::Cluster& cluster);

/// One stage: units [first_unit, end_unit) on `tp` positions. hosts: the placements of its replicas on hosts, as
/// ir::StageCode::hosts; none: all ranks on one.
ir::StageCode compile_stage(const ir::Graph& graph, const config::Strategy& strategy, int tp, int first_unit,
                            int end_unit, const std::vector<std::vector<int>>& hosts = {});

}  // namespace switchyard::compiler
