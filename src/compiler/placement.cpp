#include "compiler/placement.hpp"

#include "base/errors.hpp"

namespace switchyard::compiler {
namespace {

// A lane layout on the stage's mesh, whose axis 0 is data parallelism.
layout::Layout on_stage(const layout::Layout& lane, bool partial_over_data) {
  layout::Layout stage = lane;
  for (auto& axes : stage.split)
    for (int& axis : axes) ++axis;
  for (int& axis : stage.partial) ++axis;
  if (partial_over_data) stage.partial.insert(stage.partial.begin(), 0);
  return stage;
}

}  // namespace

layout::Mesh stage_mesh(const config::Group& group, const config::Stage& stage, const layout::Mesh& lane) {
  layout::Mesh mesh{{{"dp", group.dp}}, stage.ranks};
  mesh.axes.insert(mesh.axes.end(), lane.axes.begin(), lane.axes.end());
  return mesh;
}

ParamMaps param_maps(const ir::Graph& graph, const config::Strategy& strategy, const std::vector<ir::GroupCode>& groups) {
  const size_t count = graph.params().size();
  std::vector<std::vector<layout::ShardMap>> used(count), grad(count);
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t s = 0; s < groups[g].stages.size(); ++s) {
      const ir::StageCode& code = groups[g].stages[s];
      const layout::Mesh mesh = stage_mesh(strategy.groups[g], strategy.groups[g].stages[s], code.lane);
      for (const ir::ParamUse& use : code.params) {
        const size_t p = static_cast<size_t>(use.param);
        used[p].push_back(layout::expand(mesh, on_stage(use.used, false), graph.param(use.param).shape));
        grad[p].push_back(layout::expand(mesh, on_stage(use.grad, true), graph.param(use.param).shape));
      }
    }
  ParamMaps maps;
  for (size_t p = 0; p < count; ++p) {
    check(!used[p].empty(), "strategy \"{}\" uses {} nowhere", strategy.name, graph.param(static_cast<int>(p)).name);
    maps.used.push_back(layout::as_copies(used[p]));
    maps.grad.push_back(layout::as_addends(grad[p]));
  }
  return maps;
}

std::vector<switching::UnitMaps> unit_maps(const ir::Graph& graph) {
  std::vector<switching::UnitMaps> units(static_cast<size_t>(graph.units()));
  for (size_t p = 0; p < graph.params().size(); ++p)
    units[static_cast<size_t>(graph.params()[p].unit)].tensors.push_back(static_cast<int>(p));
  return units;
}

std::vector<layout::ShardMap> home_maps(const ParamMaps& anchor) {
  std::vector<layout::ShardMap> home;
  for (const layout::ShardMap& used : anchor.used) home.push_back(layout::one_owner(used));
  return home;
}

}  // namespace switchyard::compiler
