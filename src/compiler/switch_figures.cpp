#include "compiler/switch_figures.hpp"

#include "compiler/compile.hpp"
#include "switching/bounds.hpp"

namespace switchyard::compiler {
namespace {

std::vector<layout::ShardMap> used_maps(const ir::Graph& graph, const config::Strategy& strategy) {
  return param_maps(graph, strategy, compile(graph, strategy)).used;
}

// Units 1 .. layers.
bool is_layer(const ir::Graph& graph, int unit) { return unit > 0 && unit + 1 < graph.units(); }

std::vector<layout::ShardMap> of_layers(const ir::Graph& graph, const std::vector<layout::ShardMap>& maps) {
  std::vector<layout::ShardMap> layers;
  for (size_t p = 0; p < maps.size(); ++p)
    if (is_layer(graph, graph.params()[p].unit)) layers.push_back(maps[p]);
  return layers;
}

}  // namespace

SwitchMaps switch_maps(const ir::Graph& graph, const config::Strategy& from, const config::Strategy& to,
                       const config::Strategy* home) {
  SwitchMaps maps{
      .units = unit_maps(graph), .from = used_maps(graph, from), .compute_copy = {}, .to = used_maps(graph, to)};
  if (home)
    for (const layout::ShardMap& used : used_maps(graph, *home)) maps.compute_copy.push_back(layout::one_owner(used));
  return maps;
}

SwitchFigures switch_figures(const ir::Graph& graph, const SwitchMaps& maps, const switching::MovePlan& plan,
                             const cluster::Cluster& cluster) {
  const i64 element = size_of(graph.precision().compute);
  const switching::Traffic all = switching::traffic(plan, cluster, element);
  SwitchFigures figures{.inter_host_bytes = all.links.inter_host,
                        .intra_host_bytes = all.links.intra_host,
                        .inter_host_bound_bytes =
                            switching::inter_host_bound_bytes(maps.from, maps.compute_copy, maps.to, cluster, element),
                        .max_send_bytes = all.max_send,
                        .max_receive_bytes = all.max_receive};
  switching::MovePlan layers{{}, plan.sum};
  for (const switching::UnitMoves& unit : plan.units) {
    if (is_layer(graph, unit.unit)) layers.units.push_back(unit);
    for (const auto& round : unit.moves.rounds)
      for (const layout::Msg& m : round) figures.messages += m.src == m.dst ? 0 : 1;
  }
  figures.layers_inter_host_bytes = switching::traffic(layers, cluster, element).links.inter_host;
  figures.layers_inter_host_bound_bytes = switching::inter_host_bound_bytes(
      of_layers(graph, maps.from), of_layers(graph, maps.compute_copy), of_layers(graph, maps.to), cluster, element);
  for (const ir::Param& param : graph.params())
    figures.layer_bytes += param.unit == 1 ? param.shape.elements() * element : 0;
  return figures;
}

}  // namespace switchyard::compiler
