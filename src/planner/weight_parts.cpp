#include "planner/weight_parts.hpp"

#include <algorithm>

#include "compiler/compile.hpp"

namespace switchyard::planner {
namespace {

Interval intersection(const Interval& a, const Interval& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

Rectangle intersection(const Rectangle& a, const Rectangle& b) {
  return {intersection(a.rows, b.rows), intersection(a.columns, b.columns)};
}

double area_outside(const Rectangle& needed, std::span<const Rectangle> some, std::span<const Rectangle> others) {
  double area = needed.area();
  for (const Rectangle& other : others) area -= intersection(needed, other).area();
  for (const Rectangle& one : some) {
    const Rectangle both = intersection(needed, one);
    if (both.area() == 0) continue;
    area -= both.area();
    for (const Rectangle& other : others) area += intersection(both, other).area();
  }
  return std::max(0.0, area);
}

WeightParts::WeightParts(const ir::Graph& one_layer) : graph_(one_layer) {
  std::array<std::vector<size_t>, kUnitKinds> of_unit;  // places in matrices_
  for (size_t p = 0; p < graph_.params().size(); ++p)
    if (const ir::Param& param = graph_.params()[p]; param.shape.dims() > 1) {
      of_unit[static_cast<size_t>(param.unit)].push_back(matrices_.size());
      matrices_.push_back(static_cast<int>(p));
      elements_.emplace_back()[static_cast<size_t>(param.unit)] += static_cast<double>(param.shape.elements());
    }
  for (const ir::Param& param : graph_.params())
    if (const auto unit = static_cast<size_t>(param.unit); param.shape.dims() == 1)
      elements_[of_unit[unit].empty() ? 0 : of_unit[unit].front()][unit] += static_cast<double>(param.shape.elements());
}

std::vector<Rectangle> WeightParts::rectangles(int param, const layout::Mesh& replica) const {
  const layout::Shape& shape = graph_.param(param).shape;
  const layout::Layout layout = compiler::usual_layout(graph_, param, true, replica);
  std::vector<Rectangle> all;
  for (int place = 0; place < replica.size(); ++place) {
    const layout::Box box = layout::shard_box(replica, layout, shape, place);
    const auto share = [&](size_t dim) {
      const auto size = static_cast<double>(shape.size[dim]);
      return Interval{static_cast<double>(box.lo[dim]) / size, static_cast<double>(box.hi[dim]) / size};
    };
    all.push_back({share(0), share(1)});
  }
  return all;
}

const WeightParts::Cuts& WeightParts::cuts(const StageMesh& mesh) const {
  StageMesh weights;
  for (const layout::StageAxis axis : layout::weight_axes()) weights[axis] = mesh[axis];
  const auto [it, fresh] = cuts_.try_emplace(weights);
  Cuts& cuts = it->second;
  if (!fresh) return cuts;
  const layout::Mesh replica = compiler::replica_mesh(graph_, {}, weights, 0, graph_.units());
  for (size_t p = 0; p < matrices_.size(); ++p) {
    std::vector<Rectangle> own = rectangles(matrices_[p], replica);
    const auto known = std::ranges::find(cuts.of_place, own);
    cuts.same_as.push_back(known == cuts.of_place.end() ? p : static_cast<size_t>(known - cuts.of_place.begin()));
    cuts.of_place.push_back(known == cuts.of_place.end() ? std::move(own) : std::vector<Rectangle>());
  }
  return cuts;
}

const ParamGroups& WeightParts::groups(std::span<const Cuts* const> cuts) const {
  const auto [it, fresh] = groups_.try_emplace({cuts.begin(), cuts.end()});
  ParamGroups& groups = it->second;
  if (!fresh) return groups;
  for (size_t p = 0; p < matrices_.size(); ++p) {
    const auto same = [&](const ParamGroup& group) {
      return std::ranges::all_of(cuts, [&](const Cuts* one) { return one->same_as[group.param] == one->same_as[p]; });
    };
    auto group = std::ranges::find_if(groups.list, same);
    if (group == groups.list.end()) group = groups.list.insert(group, {.param = p, .elements = {}});
    for (size_t kind = 0; kind < kUnitKinds; ++kind) group->elements[kind] += elements_[p][kind];
  }
  for (const ParamGroup& group : groups.list)
    for (const Cuts* other : cuts)
      for (const Rectangle& part : cuts[1]->of(group.param))
        for (const Rectangle& outer : other->of(group.param)) {
          const Interval both = intersection(part.rows, outer.rows);
          groups.nested = groups.nested && (both == part.rows || both.length() == 0);
        }
  return groups;
}

}  // namespace switchyard::planner
