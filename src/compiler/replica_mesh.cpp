#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/errors.hpp"
#include "base/text.hpp"
#include "compiler/compile.hpp"

namespace switchyard::compiler {
namespace {

// The cuts of a parameter over `tp` ranks for which its operator is made.
std::vector<config::Cut> usual_cuts(const ir::Param& param, const config::Strategy& strategy, int tp) {
  if (param.cut_dim < 0) return {};
  int count = tp;
  if (param.most_parts > 0 && tp > param.most_parts) {
    count = static_cast<int>(param.most_parts);
    if (tp % count != 0)
      user_error(
          "strategy \"{}\": tp = {} is above the {} key/value heads and not a multiple of them. Use a tp up to {}, or "
          "a "
          "multiple of it.",
          strategy.name, tp, count, count);
  }
  return {{param.cut_dim, count}};
}

// The strategy's own cuts, where it states some.
std::vector<config::Cut> cuts_of(const ir::Param& param, const config::Strategy& strategy, int tp) {
  for (const config::ParamSplit& split : strategy.splits)
    if (matches_wildcard(split.parameter, param.name)) return split.cuts;
  return usual_cuts(param, strategy, tp);
}

int parts(const std::vector<config::Cut>& cuts) {
  int count = 1;
  for (const config::Cut& cut : cuts) count *= cut.parts;
  return count;
}

layout::Layout layout_of(const std::vector<config::Cut>& cuts, const ir::Param& param, const config::Strategy& strategy,
                         const layout::Mesh& replica) {
  layout::Layout layout = layout::replicated(param.shape.dims());
  size_t axis = 0;
  for (const config::Cut& cut : cuts) {
    if (cut.dim < 0 || cut.dim >= param.shape.dims())
      user_error("strategy \"{}\": {} has {} dims, so it has no dim {} to cut. Use 0 to {}.", strategy.name, param.name,
                 param.shape.dims(), cut.dim, param.shape.dims() - 1);
    for (int count = 1; count < cut.parts; ++axis) {
      count *= replica.axes[axis].size;
      layout.split[static_cast<size_t>(cut.dim)].push_back(static_cast<int>(axis));
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

}  // namespace

layout::Mesh replica_mesh(const ir::Graph& graph, const config::Strategy& strategy, int tp, int first_unit,
                          int end_unit) {
  std::set<int> edges = {1, tp};
  for (const int p : params_of(graph, first_unit, end_unit)) {
    const ir::Param& param = graph.param(p);
    int count = 1;
    for (const config::Cut& cut : cuts_of(param, strategy, tp)) {
      count *= cut.parts;
      if (cut.parts < 1 || tp % count != 0)
        user_error(
            "strategy \"{}\": {} is cut into {} parts, which does not divide tp = {}. Use cuts whose product divides "
            "it.",
            strategy.name, param.name, count, tp);
      edges.insert(count);
    }
    edges.insert(parts(usual_cuts(param, strategy, tp)));
  }
  layout::Mesh mesh;
  int previous = 1, number = 0;
  for (const int edge : edges) {
    if (edge == 1) continue;
    if (edge % previous != 0)
      user_error(
          "strategy \"{}\": cuts into {} and into {} parts do not nest on {} ranks. Use parts of which each divides "
          "the next.",
          strategy.name, previous, edge, tp);
    mesh.axes.push_back({edges.size() > 2 ? fmt::format("tp/{}", number) : "tp", edge / previous});
    previous = edge;
    ++number;
  }
  for (int position = 0; position < tp; ++position) mesh.ranks.push_back(position);
  return mesh;
}

layout::Layout param_layout(const ir::Graph& graph, int param, const config::Strategy& strategy,
                            const layout::Mesh& replica) {
  return layout_of(cuts_of(graph.param(param), strategy, replica.size()), graph.param(param), strategy, replica);
}

layout::Layout usual_layout(const ir::Graph& graph, int param, const config::Strategy& strategy,
                            const layout::Mesh& replica) {
  return layout_of(usual_cuts(graph.param(param), strategy, replica.size()), graph.param(param), strategy, replica);
}

}  // namespace switchyard::compiler
