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

// Leading factors of the axes that cut weights, one of each.
using Factors = std::vector<int>;

// Factors of these axes that a parameter's cuts have used, after each cut.
std::vector<Factors> taken_by(const std::vector<config::Cut>& cuts, const ir::Param& param,
                              const config::Strategy& strategy, const StageMesh& mesh) {
  const std::span<const StageAxis> axes = layout::weight_axes();
  std::vector<Factors> taken;
  Factors now(axes.size(), 1);
  int count = 1;
  for (const config::Cut& cut : cuts) {
    if (cut.axis) {
      const int size = mesh[*cut.axis];
      int& of_axis = now[static_cast<size_t>(std::ranges::find(axes, *cut.axis) - axes.begin())];
      const int left = size / of_axis;
      if (cut.parts > 0 && size > 1 && left % cut.parts != 0)
        user_error(
            "strategy \"{}\": {} is cut by a factor {} of the axis {}, which does not divide the {} parts that are "
            "left "
            "of it on a stage with the mesh ({}). Use one that does.",
            strategy.name, param.name, cut.parts, layout::info_of(*cut.axis).name, left, to_string(mesh));
      of_axis = cut.parts > 0 && size > 1 ? of_axis * cut.parts : size;
    } else {
      count *= cut.parts;
      const auto factors =
          cut.parts < 1 || mesh.parts(axes) < count ? std::nullopt : layout::leading_factors(mesh, axes, count);
      if (!factors)
        user_error(
            "strategy \"{}\": {} is cut into {} parts, which does not divide the {} parts of a stage with the mesh "
            "({}). Use cuts whose product divides them.",
            strategy.name, param.name, count, mesh.parts(axes), to_string(mesh));
      now = *factors;
    }
    taken.push_back(now);
  }
  return taken;
}

layout::Layout layout_of(const std::vector<config::Cut>& cuts, const ir::Param& param, const config::Strategy& strategy,
                         const layout::Mesh& replica) {
  layout::Layout layout = layout::replicated(param.shape.dims());
  const std::span<const StageAxis> axes = layout::weight_axes();
  const auto size_of = [&](int factor) { return replica.axes[static_cast<size_t>(factor)].size; };
  StageMesh mesh;
  for (const StageAxis axis : axes)
    for (const int factor : layout::factors_of(replica, axis)) mesh[axis] *= size_of(factor);
  const std::vector<Factors> taken = taken_by(cuts, param, strategy, mesh);
  for (size_t i = 0; i < cuts.size(); ++i) {
    const int dim = cuts[i].dim;
    if (dim < 0 || dim >= param.shape.dims())
      user_error("strategy \"{}\": {} has {} dims, so it has no dim {} to cut. Use 0 to {}.", strategy.name, param.name,
                 param.shape.dims(), dim, param.shape.dims() - 1);
    for (size_t a = 0; a < axes.size(); ++a) {
      const int before = i > 0 ? taken[i - 1][a] : 1;
      int reached = 1;
      for (const int factor : layout::factors_of(replica, axes[a])) {
        reached *= size_of(factor);
        if (reached > before && reached <= taken[i][a]) layout.split[static_cast<size_t>(dim)].push_back(factor);
      }
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

// The edges at which the axes of a replica must be cut into factors.
class Refinement {
 public:
  Refinement(const config::Strategy& strategy, const StageMesh& mesh) : strategy_(strategy), mesh_(mesh) {
    for (const layout::StageAxisInfo& info : layout::stage_axes()) edges_[info.axis] = {1, mesh[info.axis]};
  }

  void add(const ir::Param& param) {
    if (const std::vector<config::Cut>* cuts = own_cuts(param, strategy_))
      for (const Factors& taken : taken_by(*cuts, param, strategy_, mesh_)) add(layout::weight_axes(), taken);
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
