#include "planner/shape_index.hpp"

#include <algorithm>
#include <tuple>

namespace switchyard::planner {

ShapeIndex::ShapeIndex(std::span<const Shape> shapes, bool by_ranks) : shapes_(shapes) {
  const auto uncut = [](Placement placement) {
    placement.zero = 1;
    return placement;
  };
  const auto same_mesh = [](const Placement& a, const Placement& b) {
    return a.dp == b.dp && a.pp == b.pp && a.mesh == b.mesh;
  };
  const auto same_degrees = [&](const Placement& a, const Placement& b) {
    return by_ranks ? a.dp == b.dp && a.pp == b.pp && a.stage_ranks() == b.stage_ranks() : same_mesh(a, b);
  };
  placement_.reserve(shapes.size());
  for (int i = 0; i < size(); ++i) {
    const Placement& placement = shape(i).placement;
    const Placement* before = i == 0 ? nullptr : &shape(i - 1).placement;
    placement_.push_back(!before ? 0 : placement_.back() + (uncut(placement) == uncut(*before) ? 0 : kZeros));
    const int meshes = static_cast<int>(meshes_.size());
    if (!before || !same_degrees(placement, *before)) degrees_.push_back({{i, i}, {meshes, meshes}});
    Degrees& degrees = degrees_.back();
    if (degrees.meshes.size() == 0 || !same_mesh(placement, *before)) {
      meshes_.push_back({{i, i}, {}});
      ++degrees.meshes.end;
    }
    meshes_.back().shapes.end = degrees.shapes.end = i + 1;
  }
  for (Mesh& mesh : meshes_) {
    mesh.families.begin = static_cast<int>(families_.size());
    for (const bool splits_gradients : {false, true}) add_family(mesh.shapes, splits_gradients);
    mesh.families.end = static_cast<int>(families_.size());
  }
}

// The codes of the given shapes that split gradients, or of those that don't.
void ShapeIndex::add_family(Span shapes, bool splits_gradients) {
  const auto code_of = [](const Shape& shape) { return std::pair(shape.placement.zero, shape.code()); };
  const auto layers_of = [&](int number) {
    const Placement& p = shape(number).placement;
    return std::tuple(p.chunks, p.path, p.head_layers);
  };
  const int first = codes();
  Family family{{first, first}};
  std::vector<decltype(code_of(Shape()))> known;
  for (int i = shapes.begin; i < shapes.end; ++i) {
    if (shape(i).splits_gradients() != splits_gradients) continue;
    const auto found = std::ranges::find(known, code_of(shape(i)));
    const auto number = static_cast<size_t>(first + (found - known.begin()));
    if (found == known.end()) {
      known.push_back(code_of(shape(i)));
      codes_.emplace_back();
    }
    Code& code = codes_[number];
    const auto of_family = std::ranges::find(family.layers, layers_of(i), layers_of);
    const auto of_code =
        std::ranges::find(code.layers, layers_of(i), [&](const Layers& other) { return layers_of(other.shape); });
    code.members.push_back({i, static_cast<int>(of_code - code.layers.begin())});
    if (of_code == code.layers.end()) code.layers.push_back({i, static_cast<int>(of_family - family.layers.begin())});
    if (of_family == family.layers.end()) family.layers.push_back(i);
  }
  family.codes.end = codes();
  if (family.codes.size() > 0) families_.push_back(std::move(family));
}

}  // namespace switchyard::planner
