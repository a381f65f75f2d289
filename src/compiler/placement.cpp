#include "compiler/placement.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::compiler {
namespace {

// A replica's layout on the stage's mesh, whose axis 0 is data parallelism.
layout::Layout on_stage(const layout::Layout& replica, bool partial_over_data) {
  layout::Layout stage = replica;
  for (auto& axes : stage.split)
    for (int& axis : axes) ++axis;
  for (int& axis : stage.partial) ++axis;
  if (partial_over_data) stage.partial.insert(stage.partial.begin(), 0);
  return stage;
}

// Appends what a stage holds, unless an earlier chunk on the same ranks holds the same.
void add(std::vector<layout::ShardMap>& maps, layout::ShardMap map, const std::string& strategy,
         const std::string& param) {
  for (const layout::ShardMap& other : maps) {
    const bool shared = std::ranges::any_of(map.shards, [&](const layout::Shard& a) {
      return std::ranges::any_of(other.shards, [&](const layout::Shard& b) { return a.rank == b.rank; });
    });
    if (!shared) continue;
    if (!(other.shards == map.shards && other.partials == map.partials))
      user_error(
          "strategy \"{}\": two chunks on the same ranks use {} in different cuts. Give both the same cuts, or use a "
          "schedule "
          "without chunks.",
          strategy, param);
    return;
  }
  maps.push_back(std::move(map));
}

}  // namespace

layout::Mesh stage_mesh(const config::Stage& stage, const layout::Mesh& replica) {
  constexpr layout::StageAxis kData = layout::StageAxis::data;
  layout::Mesh mesh{{{std::string(layout::info_of(kData).name), stage.mesh[kData]}}, stage.ranks};
  mesh.axes.insert(mesh.axes.end(), replica.axes.begin(), replica.axes.end());
  return mesh;
}

ParamMaps param_maps(const ir::Graph& graph, const config::Strategy& strategy,
                     const std::vector<ir::GroupCode>& groups) {
  const size_t count = graph.params().size();
  std::vector<std::vector<layout::ShardMap>> used(count), grad(count);
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t s = 0; s < groups[g].stages.size(); ++s) {
      const ir::StageCode& code = groups[g].stages[s];
      const layout::Mesh mesh = stage_mesh(strategy.groups[g].stages[s], code.replica);
      for (const ir::ParamUse& use : code.params) {
        const size_t p = static_cast<size_t>(use.param);
        const std::string& name = graph.param(use.param).name;
        add(used[p], layout::expand(mesh, on_stage(use.used, false), graph.param(use.param).shape), strategy.name,
            name);
        add(grad[p], layout::expand(mesh, on_stage(use.grad, true), graph.param(use.param).shape), strategy.name, name);
      }
    }
  ParamMaps maps;
  for (size_t p = 0; p < count; ++p) {
    check(!used[p].empty(), "strategy \"{}\" uses {} nowhere", strategy.name, graph.param(static_cast<int>(p)).name);
    maps.used.push_back(layout::as_copies(used[p]));
    maps.grad.push_back(layout::as_partials(grad[p]));
  }
  return maps;
}

std::vector<switching::UnitMaps> unit_maps(const ir::Graph& graph) {
  std::vector<switching::UnitMaps> units(static_cast<size_t>(graph.units()));
  for (size_t p = 0; p < graph.params().size(); ++p)
    units[static_cast<size_t>(graph.params()[p].unit)].tensors.push_back(static_cast<int>(p));
  return units;
}

std::vector<layout::ShardMap> owner_maps(const ParamMaps& anchor) {
  std::vector<layout::ShardMap> owners;
  for (const layout::ShardMap& used : anchor.used) owners.push_back(layout::one_owner(used));
  return owners;
}

std::vector<layout::ShardMap> home_maps(const ParamMaps& anchor, int zero) {
  return zero == 0 ? anchor.used : owner_maps(anchor);
}

}  // namespace switchyard::compiler
