// Which part of each parameter the ranks of a stage hold, as shares of its rows and columns.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ir/graph.hpp"
#include "planner/space.hpp"

namespace switchyard::planner {

struct Interval {
  double begin = 0, end = 0;
  double length() const { return end > begin ? end - begin : 0; }
  bool operator==(const Interval&) const = default;
};

/// A part of a matrix.
struct Rectangle {
  Interval rows, columns;
  double area() const { return rows.length() * columns.length(); }
  bool operator==(const Rectangle&) const = default;
};
/// Its area is 0 where there is none.
Rectangle intersection(const Rectangle& a, const Rectangle& b);

/// Area of the rectangle that lies outside of the parts that are there; those of each list are disjoint.
double area_outside(const Rectangle& needed, std::span<const Rectangle> some, std::span<const Rectangle> others);

/// The embedding's unit, a layer's and the head's.
inline constexpr size_t kUnitKinds = 3;

/// Parameters of which some placements cut all in the same way, with their number of elements in each kind of unit.
struct ParamGroup {
  size_t param = 0;  // one of them
  std::array<double, kUnitKinds> elements{};
};
/// nested: the rows of each part of the second placement lie inside or outside of those of each part of all others.
struct ParamGroups {
  std::vector<ParamGroup> list;
  bool nested = true;
};

/// What the tensor axes cut of a model's parameters. Vectors (norms, biases), which are small, count as part of the
/// first matrix of their unit.
class WeightParts {
 public:
  /// one_layer: the model with one layer; it outlives this.
  explicit WeightParts(const ir::Graph& one_layer);

  /// of_place: by parameter, the rectangles of the ranks that cut weights together, in their order; empty where an
  /// earlier parameter, `same_as`, has the same ones.
  struct Cuts {
    std::vector<size_t> same_as;
    std::vector<std::vector<Rectangle>> of_place;
    std::span<const Rectangle> of(size_t param) const { return of_place[same_as[param]]; }
  };
  /// Cuts on a stage's mesh, of which only the axes that cut weights count.
  const Cuts& cuts(const StageMesh& mesh) const;
  /// Groups of parameters that all of these cuts cut in the same way.
  const ParamGroups& groups(std::span<const Cuts* const> cuts) const;

 private:
  std::vector<Rectangle> rectangles(int param, const layout::Mesh& replica) const;

  const ir::Graph& graph_;
  std::vector<int> matrices_;                             // numbers of parameters in the graph
  std::vector<std::array<double, kUnitKinds>> elements_;  // elements of these
  mutable std::map<StageMesh, Cuts> cuts_;
  mutable std::map<std::vector<const Cuts*>, ParamGroups> groups_;
};

}  // namespace switchyard::planner
