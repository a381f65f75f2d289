// Boxes and cuts: the arithmetic of who holds what.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/errors.hpp"

namespace switchyard::layout {

inline constexpr int kMaxDims = 3;

/// Half-open range of indices in global coordinates, per dim: [lo, hi).
struct Box {
  int dims = 0;
  std::array<i64, kMaxDims> lo{}, hi{};
  i64 size(int dim) const { return hi[static_cast<size_t>(dim)] - lo[static_cast<size_t>(dim)]; }
  i64 elements() const;
  bool empty() const { return elements() == 0; }
  bool contains(const Box& other) const;
  bool operator==(const Box&) const = default;
};

Box whole(std::span<const i64> size);
/// Common part; all-zero sizes where there is none (test with empty()).
Box intersect(const Box& a, const Box& b);
/// `a` without `b`, as disjoint boxes (at most 2 * dims).
std::vector<Box> subtract(const Box& a, const Box& b);
std::string to_string(const Box& box);

/// Sizes per dim, and for each dim the alignments on which cuts may fall, coarse to fine (none: 1). Elements.
struct Shape {
  std::vector<i64> size;
  std::vector<std::vector<i64>> alignment;
  int dims() const { return static_cast<int>(size.size()); }
  i64 elements() const;
  bool operator==(const Shape&) const = default;
};
/// A shape without alignments.
Shape plain(std::vector<i64> size);

/// Where part `part` of `parts` of `n` elements starts: min(n, g * floor(part * ceil(n / g) / parts)), g the coarsest
/// alignment with at least `parts` pieces, else the finest. 100 elements, g = 8, 2 parts: 48 + 52. Part `parts` starts
/// at n.
i64 cut_start(i64 n, std::span<const i64> alignments, i64 part, i64 parts);

}  // namespace switchyard::layout

template <>
struct fmt::formatter<switchyard::layout::Box>
    : switchyard::FormattedBy<switchyard::layout::Box, switchyard::layout::to_string> {};
