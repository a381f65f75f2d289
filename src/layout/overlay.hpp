// Overlaid boxes of one tensor: the grid of their edges, and the regions in which all elements are in the same boxes.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "layout/shape.hpp"

namespace switchyard::layout {

/// The cells between all edges of some boxes. Each box is a union of cells; empty boxes add no edge.
class Grid {
 public:
  explicit Grid(std::span<const Box> boxes);
  /// Number of cells; they are numbered row-major.
  size_t cells() const { return count_[0] * count_[1] * count_[2]; }
  Box cell(size_t index) const;
  /// Calls visit(index) for each cell of `box`, whose edges are edges of the grid. Nothing for an empty box.
  template <class Visit>
  void each_cell(const Box& box, Visit&& visit) const {
    if (box.empty()) return;
    const Range range = cells_of(box);
    for (size_t i = range.lo[0]; i < range.hi[0]; ++i) {
      for (size_t j = range.lo[1]; j < range.hi[1]; ++j) {
        for (size_t k = range.lo[2]; k < range.hi[2]; ++k) visit((i * count_[1] + j) * count_[2] + k);
      }
    }
  }

 private:
  static_assert(kMaxDims == 3);
  struct Range {
    std::array<size_t, kMaxDims> lo{}, hi{};
  };
  Range cells_of(const Box& box) const;

  int dims_ = 0;
  std::array<std::vector<i64>, kMaxDims> edges_;  // ascending, distinct; a dim that the boxes lack has one cell
  std::array<size_t, kMaxDims> count_{1, 1, 1};
};

/// A box, and which of the overlaid boxes contain it (indices, ascending).
struct Region {
  Box box;
  std::vector<int> members;
  bool operator==(const Region&) const = default;
};

/// Narrows the members of a cell before regions are formed.
using Narrow = std::function<void(std::vector<int>& members)>;

/// Disjoint regions of constant membership, as large as simple merging makes them, in order of their lower corners.
/// Elements in no box (or, after `narrow`, with no members left) are in no region.
std::vector<Region> overlay(std::span<const Box> boxes, const Narrow& narrow = {});

/// Covers the same elements with fewer boxes: neighbours that form a box are joined, last dim first. `boxes` are
/// disjoint.
std::vector<Box> merge(std::vector<Box> boxes);

}  // namespace switchyard::layout
