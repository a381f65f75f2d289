#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/errors.hpp"
#include "base/text.hpp"
#include "compiler/compile.hpp"

namespace switchyard::compiler {
namespace {

using layout::StageAxis;
using layout::StageMesh;

// The strategy's own cuts of a parameter; null: they follow from the roles of its dims.
const std::vector<config::Cut>* own_cuts(const ir::Param& param, const config::Strategy& strategy) {
  for (const config::ParamSplit& split : strategy.splits)
    if (matches_wildcard(split.parameter, param.name)) return &split.cuts;
  return nullptr;
}

// The finest pieces of a dim.
i64 pieces_of(const layout::Shape& shape, size_t dim) {
  const std::vector<i64>& alignments = shape.alignment[dim];
  const i64 piece = alignments.empty() ? 1 : alignments.back();
  return (shape.size[dim] + piece - 1) / piece;
}

layout::Layout layout_of(const std::vector<config::Cut>& cuts, const ir::Param& param, const config::Strategy& strategy,
                         const layout::Mesh& replica) {
  layout::Layout layout = layout::replicated(param.shape.dims());
  const std::vector<int> axes = layout::factors_of(replica, layout::weight_axes());
  size_t next = 0;
  for (const config::Cut& cut : cuts) {
    if (cut.dim < 0 || cut.dim >= param.shape.dims())
      user_error("strategy \"{}\": {} has {} dims, so it has no dim {} to cut. Use 0 to {}.", strategy.name, param.name,
                 param.shape.dims(), cut.dim, param.shape.dims() - 1);
    for (int count = 1; count < cut.parts; ++next) {
      count *= replica.axes[static_cast<size_t>(axes[next])].size;
      layout.split[static_cast<size_t>(cut.dim)].push_back(axes[next]);
    }
  }
  return layout;
}

std::set<int> params_of(const ir::Graph& graph, int first_unit, int end_unit) {
  std::set<int> params;
  for (const ir::Call& call : graph.calls())
    if (call.unit >= first_unit && call.unit < end_unit)
      for (const int v : call.in)
        if (graph.value(v).kind == ir::ValueKind::param) params.insert(graph.value(v).param);
  return params;
}

// Where the axes of a replica must be cut into factors.
class Refinement {
 public:
  Refinement(const config::Strategy& strategy, const StageMesh& mesh) : strategy_(strategy), mesh_(mesh) {
    for (const layout::StageAxisInfo& info : layout::stage_axes()) edges_[info.axis] = {1, mesh[info.axis]};
  }

  void add(const ir::Param& param) {
    if (const std::vector<config::Cut>* cuts = own_cuts(param, strategy_)) {
      int count = 1;
      for (const config::Cut& cut : *cuts) {
        count *= cut.parts;
        const auto factors = cut.parts < 1 ? std::nullopt : leading_parts(layout::weight_axes(), count);
        if (!factors)
          user_error(
              "strategy \"{}\": {} is cut into {} parts, which does not divide tp = {}. Use cuts whose product divides "
              "it.",
              strategy_.name, param.name, count, mesh_.parts(layout::weight_axes()));
        add(layout::weight_axes(), *factors);
      }
    }
    for (size_t dim = 0; dim < param.roles.size(); ++dim)
      if (param.roles[dim] == layout::DimRole::heads) add_heads(pieces_of(param.shape, dim));
  }

  layout::Mesh mesh() const {
    layout::Mesh mesh;
    int ranks = 1;
    for (const layout::StageAxisInfo& info : layout::stage_axes()) {
      const std::set<int>& edges = edges_.at(info.axis);
      if (mesh_[info.axis] == 1 || std::ranges::count(layout::axes_outside_code(), info.axis) > 0) continue;
      int previous = 1, number = 0;
      for (const int edge : edges) {
        if (edge == 1) continue;
        if (edge % previous != 0)
          user_error(
              "strategy \"{}\": cuts into {} and into {} parts do not nest on {} ranks. Use parts of which each "
              "divides the next.",
              strategy_.name, previous, edge, mesh_[info.axis]);
        const std::string name(info.name);
        mesh.axes.push_back({edges.size() > 2 ? fmt::format("{}/{}", name, number) : name, edge / previous});
        previous = edge;
        ++number;
      }
      ranks *= mesh_[info.axis];
    }
    for (int position = 0; position < ranks; ++position) mesh.ranks.push_back(position);
    return mesh;
  }

 private:
  // Leading factors of axes whose product is exactly `parts`.
  std::optional<std::vector<int>> leading_parts(std::span<const StageAxis> axes, i64 parts) const {
    return mesh_.parts(axes) < parts ? std::nullopt : layout::leading_factors(mesh_, axes, parts);
  }

  void add_heads(i64 heads) {
    const std::span<const StageAxis> axes = layout::cuts_of(layout::Role::attention, true).features;
    const auto factors = layout::leading_factors(mesh_, axes, heads);
    if (!factors)
      user_error("strategy \"{}\": {} heads can't be divided among the ranks of a stage with the mesh ({}).",
                 strategy_.name, heads, to_string(mesh_));
    add(axes, *factors);
  }

  void add(std::span<const StageAxis> axes, const std::vector<int>& factors) {
    for (size_t i = 0; i < axes.size(); ++i) edges_[axes[i]].insert(factors[i]);
  }

  const config::Strategy& strategy_;
  const StageMesh& mesh_;
  std::map<StageAxis, std::set<int>> edges_;
};

}  // namespace

layout::Mesh replica_mesh(const ir::Graph& graph, const config::Strategy& strategy, const StageMesh& mesh,
                          int first_unit, int end_unit) {
  Refinement refinement(strategy, mesh);
  for (const int p : params_of(graph, first_unit, end_unit)) refinement.add(graph.param(p));
  return refinement.mesh();
}

layout::Layout param_layout(const ir::Graph& graph, int param, const config::Strategy& strategy,
                            const layout::Mesh& replica) {
  if (const std::vector<config::Cut>* cuts = own_cuts(graph.param(param), strategy))
    return layout_of(*cuts, graph.param(param), strategy, replica);
  return usual_layout(graph, param, strategy.sequence_parallel, replica);
}

layout::Layout usual_layout(const ir::Graph& graph, int param, bool sequence_parallel, const layout::Mesh& replica) {
  const ir::Param& p = graph.param(param);
  layout::Layout layout = layout::replicated(p.shape.dims());
  for (size_t dim = 0; dim < p.roles.size(); ++dim) {
    std::vector<int> axes = layout::factors_of(replica, layout::cuts_of(p.roles[dim], sequence_parallel));
    if (p.roles[dim] == layout::DimRole::heads) axes = layout::leading_axes(replica, axes, pieces_of(p.shape, dim));
    layout.split[dim] = std::move(axes);
  }
  return layout;
}

RoleLayout role_layout(layout::Role role, const ir::Type& type, bool sequence_parallel, const layout::Mesh& replica) {
  const layout::RoleCuts cuts = layout::cuts_of(role, sequence_parallel);
  const std::vector<int> features = layout::factors_of(replica, cuts.features);
  RoleLayout made{
      {{layout::factors_of(replica, cuts.tokens), layout::leading_axes(replica, features, pieces_of(type.shape, 1))},
       {}},
      {}};
  made.copies.assign(features.begin() + static_cast<std::ptrdiff_t>(made.layout.split[1].size()), features.end());
  return made;
}

}  // namespace switchyard::compiler
