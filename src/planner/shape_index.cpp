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
    mesh.codes.begin = static_cast<int>(codes_.size());
    add_codes(mesh);
    mesh.codes.end = static_cast<int>(codes_.size());
  }
}

void ShapeIndex::add_codes(const Mesh& mesh) {
  const auto code_of = [](const Shape& shape) { return std::pair(shape.placement.zero, shape.code()); };
  const auto layers_of = [](const Placement& p) { return std::tuple(p.chunks, p.path, p.head_layers); };
  const auto first = codes_.size();
  std::vector<decltype(code_of(Shape()))> codes;
  for (int i = mesh.shapes.begin; i < mesh.shapes.end; ++i) {
    const auto found = std::ranges::find(codes, code_of(shape(i)));
    const auto number = static_cast<size_t>(found - codes.begin());
    if (found == codes.end()) {
      codes.push_back(code_of(shape(i)));
      codes_.emplace_back();
    }
    Code& code = codes_[first + number];
    const auto layers = std::ranges::find(code.layers, layers_of(shape(i).placement),
                                          [&](int other) { return layers_of(shape(other).placement); });
    code.members.push_back({i, static_cast<int>(layers - code.layers.begin())});
    if (layers == code.layers.end()) code.layers.push_back(i);
  }
}

}  // namespace switchyard::planner
