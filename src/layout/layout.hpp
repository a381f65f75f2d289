// Mesh, Layout and ShardMap: who holds which box of a tensor. Nothing else in Switchyard computes this.
// Source: named-axis meshes as in GSPMD (arXiv 2105.04663), with uneven cuts and ordered nested splits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "layout/shape.hpp"

namespace switchyard::layout {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

/// Named axes over an ordered list of ranks, first axis outermost. ranks.size() is the product of the axis sizes.
struct Mesh {
  std::vector<Axis> axes;
  std::vector<int> ranks;
  int size() const { return static_cast<int>(ranks.size()); }
  /// Index of the axis called `name`; -1 if there is none.
  int find(const std::string& name) const;
  /// Coordinate of the rank at `position` in `ranks` along `axis`.
  int coordinate(int position, int axis) const;
  /// Positions of the ranks that differ from `position` along the given axes only (itself included), in mesh order
  /// with axes[0] outermost.
  std::vector<int> peers(int position, const std::vector<int>& axes) const;
  bool operator==(const Mesh&) const = default;
};
/// Throws InternalError unless sizes are positive and match, and names and ranks are unique.
void validate(const Mesh& mesh);

/// How one tensor lies on a mesh. split[d]: the axes (indices into mesh.axes) that cut dim d, outermost cut first.
/// partial: axes whose members hold partials of the value. Every other axis holds copies.
struct Layout {
  std::vector<std::vector<int>> split;
  std::vector<int> partial;
  bool operator==(const Layout&) const = default;
};
/// Whether the rank at `position` has the first of the copies: along axes that neither cut nor have partials it is at
/// 0.
bool is_first_copy(const Mesh& mesh, const Layout& layout, int position);
/// Whether the parts along one of the axes differ in the two layouts: another dim is cut, or copies or partials are
/// there instead.
bool differ_along(const Layout& a, const Layout& b, std::span<const int> axes);
/// No dim split, nothing partial.
Layout replicated(int dims);
std::string to_string(const Mesh& mesh, const Layout& layout);

/// One rank's piece. partial: which of the value's partials it belongs to.
struct Shard {
  int rank = 0, partial = 0;
  Box box;
  bool operator==(const Shard&) const = default;
};

/// The general form of who holds what: the value is the sum over partials, taking any one copy of each. A rank may hold
/// several shards (of several partials, or disjoint boxes of one). Shards may be empty boxes.
struct ShardMap {
  Shape shape;
  int partials = 1;
  std::vector<Shard> shards;
  bool operator==(const ShardMap&) const = default;
};

/// Box of the rank at `position`. Nested splits cut the part that the outer ones left, on alignments counted from its
/// start.
Box shard_box(const Mesh& mesh, const Layout& layout, const Shape& shape, int position);
/// Shards in order of position; partial = mixed-radix number of the partial coordinates, partial[0] most significant.
ShardMap expand(const Mesh& mesh, const Layout& layout, const Shape& shape);

/// The same, with the rows (dim 0) of each block cut by further axes, outermost cut first, on single rows: alignments
/// do not apply. The layout holds copies or partials over these axes; the block's value is then the sum over the
/// partials. Ranks whose part is empty have no shard.
ShardMap expand_rows(const Mesh& mesh, const Layout& layout, const Shape& shape, const std::vector<int>& axes);

/// The same value held by several maps: shards are further copies. All maps have one partial.
ShardMap as_copies(const std::vector<ShardMap>& maps);
/// A value that is the sum of the maps' values: partials are renumbered in order.
ShardMap as_partials(const std::vector<ShardMap>& maps);
/// One owner per element: the copies of each box share it evenly, cut along dim 0 (rows, on single rows; the layout's
/// alignments do not apply), first holder first. `map` has one partial. Ranks that own nothing have no shard.
ShardMap one_owner(const ShardMap& map);
/// InternalError unless every element of every partial is covered; with `exactly_once`, by one rank only.
void validate(const ShardMap& map, bool exactly_once = false);

}  // namespace switchyard::layout
