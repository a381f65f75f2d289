#include "compiler/placement.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::compiler {
namespace {

// The code's layout on the stage's mesh, whose first axes are those outside the code.
layout::Layout on_stage(const layout::Layout& replica, bool partial_outside) {
  const int outside = static_cast<int>(layout::axes_outside_code().size());
  layout::Layout stage = replica;
  for (auto& axes : stage.split)
    for (int& axis : axes) axis += outside;
  for (int& axis : stage.partial) axis += outside;
  for (int axis = outside; partial_outside && axis-- > 0;) stage.partial.insert(stage.partial.begin(), axis);
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
  layout::Mesh mesh{{}, stage.ranks};
  for (const layout::StageAxis axis : layout::axes_outside_code())
    mesh.axes.push_back({std::string(layout::info_of(axis).name), stage.mesh[axis]});
  mesh.axes.insert(mesh.axes.end(), replica.axes.begin(), replica.axes.end());
  return mesh;
}

Placed placed(const layout::Shape& shape, const config::Stage& stage, const ir::StageCode& code,
              const ir::ParamUse& use) {
  const layout::Mesh mesh = stage_mesh(stage, code.replica);
  const layout::Layout used = on_stage(use.used, false), made = on_stage(use.grad, true);
  const auto rows_of = [&](const layout::Layout& whole, const std::vector<layout::StageAxis>& cuts) {
    return cuts.empty() ? layout::expand(mesh, whole, shape)
                        : layout::expand_rows(mesh, whole, shape, layout::factors_of(mesh, cuts));
  };
  return {.used = layout::expand(mesh, used, shape),
          .stored = rows_of(used, code.rows.stored),
          .made = layout::expand(mesh, made, shape),
          .grad = rows_of(made, code.rows.grad)};
}

ParamMaps param_maps(const ir::Graph& graph, const config::Strategy& strategy,
                     const std::vector<ir::GroupCode>& groups) {
  const size_t count = graph.params().size();
  struct Maps {
    std::vector<layout::ShardMap> used, stored, made, grad;  // by stage
  };
  std::vector<Maps> by_param(count);
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t s = 0; s < groups[g].stages.size(); ++s) {
      const ir::StageCode& code = groups[g].stages[s];
      for (const ir::ParamUse& use : code.params) {
        const ir::Param& param = graph.param(use.param);
        Maps& maps = by_param[static_cast<size_t>(use.param)];
        Placed on = placed(param.shape, strategy.groups[g].stages[s], code, use);
        add(maps.used, std::move(on.used), strategy.name, param.name);
        add(maps.stored, std::move(on.stored), strategy.name, param.name);
        add(maps.made, std::move(on.made), strategy.name, param.name);
        add(maps.grad, std::move(on.grad), strategy.name, param.name);
      }
    }
  ParamMaps maps;
  for (size_t p = 0; p < count; ++p) {
    const Maps& of = by_param[p];
    check(!of.used.empty(), "strategy \"{}\" uses {} nowhere", strategy.name, graph.param(static_cast<int>(p)).name);
    maps.used.push_back(layout::as_copies(of.used));
    maps.stored.push_back(layout::as_copies(of.stored));
    maps.made.push_back(layout::as_partials(of.made));
    maps.grad.push_back(layout::as_partials(of.grad));
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
  for (const layout::ShardMap& stored : anchor.stored) owners.push_back(layout::one_owner(stored));
  return owners;
}

std::vector<layout::ShardMap> home_maps(const ParamMaps& anchor, int zero) {
  return zero == 0 ? anchor.stored : owner_maps(anchor);
}

}  // namespace switchyard::compiler
