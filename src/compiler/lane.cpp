#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/errors.hpp"
#include "base/text.hpp"
#include "compiler/compile.hpp"

namespace switchyard::compiler {
namespace {

// How a parameter is cut over `tp` ranks: the strategy's own word, or the builder's.
std::vector<config::Cut> cuts_of(const ir::Param& param, const config::Strategy& strategy, int tp) {
  for (const config::ParamSplit& split : strategy.splits)
    if (matches_wildcard(split.parameter, param.name)) return split.cuts;
  if (param.cut_dim < 0) return {};
  int ways = tp;
  if (param.most_ways > 0 && tp > param.most_ways) {
    ways = static_cast<int>(param.most_ways);
    if (tp % ways != 0)
      user_error(
          "strategy \"{}\": tp = {} is above the {} key/value heads and no multiple of them. Use a tp up to {}, or a multiple of it.",
          strategy.name, tp, ways, ways);
  }
  return {{param.cut_dim, ways}};
}

std::set<int> params_of(const ir::Graph& graph, int first_unit, int end_unit) {
  std::set<int> params;
  for (const ir::Call& call : graph.calls())
    if (call.unit >= first_unit && call.unit < end_unit)
      for (const int v : call.in)
        if (graph.value(v).kind == ir::ValueKind::param) params.insert(graph.value(v).param);
  return params;
}

}  // namespace

layout::Mesh lane_mesh(const ir::Graph& graph, const config::Strategy& strategy, int tp, int first_unit, int end_unit) {
  std::set<int> edges = {1, tp};
  for (const int p : params_of(graph, first_unit, end_unit)) {
    const ir::Param& param = graph.param(p);
    int ways = 1;
    for (const config::Cut& cut : cuts_of(param, strategy, tp)) {
      ways *= cut.ways;
      if (cut.ways < 1 || tp % ways != 0)
        user_error("strategy \"{}\": {} is cut {} ways, which does not divide tp = {}. Use cuts whose product divides it.", strategy.name,
                   param.name, ways, tp);
      edges.insert(ways);
    }
  }
  layout::Mesh mesh;
  int previous = 1, number = 0;
  for (const int edge : edges) {
    if (edge == 1) continue;
    if (edge % previous != 0)
      user_error("strategy \"{}\": cuts into {} and into {} parts do not nest on {} ranks. Use ways of which each divides the next.",
                 strategy.name, previous, edge, tp);
    mesh.axes.push_back({edges.size() > 2 ? fmt::format("tp/{}", number) : "tp", edge / previous});
    previous = edge;
    ++number;
  }
  for (int position = 0; position < tp; ++position) mesh.ranks.push_back(position);
  return mesh;
}

layout::Layout param_layout(const ir::Graph& graph, int param, const config::Strategy& strategy, const layout::Mesh& lane) {
  const ir::Param& p = graph.param(param);
  layout::Layout layout = layout::replicated(p.shape.dims());
  size_t axis = 0;
  for (const config::Cut& cut : cuts_of(p, strategy, lane.size())) {
    if (cut.dim < 0 || cut.dim >= p.shape.dims())
      user_error("strategy \"{}\": {} has {} dims, so it has no dim {} to cut. Use 0 to {}.", strategy.name, p.name, p.shape.dims(),
                 cut.dim, p.shape.dims() - 1);
    for (int ways = 1; ways < cut.ways; ++axis) {
      ways *= lane.axes[axis].size;
      layout.split[static_cast<size_t>(cut.dim)].push_back(static_cast<int>(axis));
    }
  }
  return layout;
}

}  // namespace switchyard::compiler
