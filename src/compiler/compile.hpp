// The graph compiler: one graph, any strategy -> Code. Layouts are propagated through the forward and backward pass at
// once, mismatches become reshards, recomputation clones calls into the backward pass.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/strategy.hpp"
#include "ir/code.hpp"

namespace switchyard::compiler {

/// Mesh of one replica of a stage: its axes larger than 1, refined so that whole axes cut every parameter that its
/// units [first_unit, end_unit) use, and the heads inside attention (outer 8 with 4 key/value heads: outer/0 = 4,
/// outer/1 = 2). UserError where cuts do not nest or heads can't be divided.
layout::Mesh replica_mesh(const ir::Graph& graph, const config::Strategy& strategy, const layout::StageMesh& mesh,
                          int first_unit, int end_unit);

/// Layout in which a parameter is held on a replica mesh: the strategy's cuts if it names the parameter, else the usual
/// layout.
layout::Layout param_layout(const ir::Graph& graph, int param, const config::Strategy& strategy,
                            const layout::Mesh& replica);
/// The layout of a parameter that follows from the roles of its dims: every operator can compute with it.
layout::Layout usual_layout(const ir::Graph& graph, int param, bool sequence_parallel, const layout::Mesh& replica);

/// Layout of an activation (T, features) with a role on a replica mesh. copies: axes that would cut its features if
/// there were more heads; a gradient may stay partial over them.
struct RoleLayout {
  layout::Layout layout;
  std::vector<int> copies;
};
RoleLayout role_layout(layout::Role role, const ir::Type& type, bool sequence_parallel, const layout::Mesh& replica);

/// Planned and verified exchanges of reshards, for all code that is compiled for one cluster: layers, strategies and
/// plans have the same ones. Any thread.
class KnownExchanges {
 public:
  using List = std::vector<std::shared_ptr<const layout::Exchange>>;
  /// The exchanges with this name; `plan` makes them if it is new.
  List named(const std::string& name, const std::function<List()>& plan);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, List> known_;
};

/// How code is made, besides what the strategy says. overlap: collectives run beside computing (compiler/overlap).
/// overlap_transfers: as in ir::StageCode.
/// exchanges: those that are known; null: none. on_devices, element_kernels: kernels are those for devices, which have
/// other temporaries, and for elements they are ours (ir::CallSize); both count for predictions only.
struct CodeOptions {
  bool overlap = true, overlap_transfers = true, on_devices = false, element_kernels = false;
  std::shared_ptr<KnownExchanges> exchanges{};
};

/// Code of every group of a strategy. The graph is forward only (evaluation) or differentiated. An activation with a
/// role is brought into that role's layout as soon as it is made. The residual stream is cut on tokens by all replica
/// axes (sequence parallelism), or, where the strategy turns that off, copied over outer and cut on features by inner;
/// between stages it is cut on tokens in any case (scatter and gather, arXiv 2104.04473, section 4.1). A parameter held
/// in cuts that its operators can't compute with is gathered into its usual layout in each segment that uses it, and
/// its gradient is accumulated in that layout. Reshards are the quickest for each replica as it lies on the cluster's
/// hosts (layout/exchange); no ranks: all are on one host.
std::vector<ir::GroupCode> compile(const ir::Graph& graph, const config::Strategy& strategy,
                                   const cluster::Cluster& cluster = {}, const CodeOptions& how = {});

/// The different placements on hosts of replicas of so many ranks, one after the other.
std::vector<std::vector<int>> host_patterns(std::span<const int> ranks, i64 positions, const cluster::Cluster& cluster);

/// One stage: units [first_unit, end_unit) on a replica of the mesh. hosts: the placements of its replicas on hosts, as
/// ir::StageCode::hosts; none: all ranks on one.
ir::StageCode compile_stage(const ir::Graph& graph, const config::Strategy& strategy, const layout::StageMesh& mesh,
                            int first_unit, int end_unit, const std::vector<std::vector<int>>& hosts = {},
                            const CodeOptions& how = {});

}  // namespace switchyard::compiler
