// Random meshes, layouts and shapes, and arrays to check maps against element by element.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>

#include "layout/layout.hpp"

namespace switchyard::layout {

class RandomMaps {
 public:
  explicit RandomMaps(unsigned seed) : random_(seed) {}

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool coin() { return below(2) == 0; }

  /// Up to `ranks` ranks in any order, in one to three axes.
  Mesh mesh(int ranks) {
    Mesh result;
    int size = 1;
    for (int a = 0, axes = 1 + below(3); a < axes; ++a) {
      const int n = 1 + below(std::min(4, ranks / size));
      result.axes.push_back({std::string(1, static_cast<char>('a' + a)), n});
      size *= n;
    }
    std::vector<int> order(static_cast<size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    result.ranks.assign(order.begin(), order.begin() + size);
    return result;
  }

  /// One to three dims of 1 to 12 elements, some with alignments.
  Shape shape() {
    Shape result;
    for (int d = 0, dims = 1 + below(3); d < dims; ++d) {
      result.size.push_back(1 + below(12));
      const i64 fine = 1 + below(3);
      result.alignment.push_back(coin()   ? std::vector<i64>{}
                                 : coin() ? std::vector<i64>{fine}
                                          : std::vector<i64>{fine * 2, fine});
    }
    return result;
  }

  /// Every axis cuts some dim, copies, or (if allowed) is partial; the order of nested cuts is random.
  Layout layout(const Mesh& mesh, const Shape& shape, bool partial) {
    Layout result = replicated(shape.dims());
    std::vector<int> axes(mesh.axes.size());
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), random_);
    for (const int axis : axes) {
      const int use = below(partial ? 4 : 3);
      if (use < 2) result.split[static_cast<size_t>(below(shape.dims()))].push_back(axis);
      if (use == 3) result.partial.push_back(axis);
    }
    return result;
  }

  /// A map of one mesh, or of two replicas on different meshes (copies or partials).
  ShardMap map(const Shape& shape, int ranks, bool partial) {
    const Mesh first = mesh(ranks);
    const ShardMap one = expand(first, layout(first, shape, partial), shape);
    if (coin()) return one;
    Mesh second = mesh(ranks);
    std::erase_if(second.ranks, [&](int rank) {
      return std::find(first.ranks.begin(), first.ranks.end(), rank) != first.ranks.end();
    });
    if (second.ranks.empty()) return one;
    second.axes = {{"a", second.size()}};
    const ShardMap other = expand(second, layout(second, shape, partial), shape);
    if (partial) return as_partials({one, other});
    return as_copies({one, other});
  }

 private:
  std::mt19937 random_;
};

/// Calls visit(row-major index) for each element of `box` in a tensor of `size`.
template <class Visit>
void each_element(const Box& box, const std::vector<i64>& size, Visit&& visit) {
  if (box.empty()) return;
  const auto lo = [&](size_t d) { return d < size.size() ? box.lo[d] : 0; };
  const auto hi = [&](size_t d) { return d < size.size() ? box.hi[d] : 1; };
  const i64 n1 = size.size() > 1 ? size[1] : 1, n2 = size.size() > 2 ? size[2] : 1;
  for (i64 i = lo(0); i < hi(0); ++i) {
    for (i64 j = lo(1); j < hi(1); ++j) {
      for (i64 k = lo(2); k < hi(2); ++k) visit(static_cast<size_t>((i * n1 + j) * n2 + k));
    }
  }
}

}  // namespace switchyard::layout
