#include "layout/overlay.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/errors.hpp"
#include "base/hash.hpp"

namespace switchyard::layout {
namespace {

/// Order in which boxes that can be joined along `dim` become neighbours.
bool before_along(const Box& a, const Box& b, size_t dim) {
  for (size_t d = 0; d < static_cast<size_t>(a.dims); ++d) {
    if (d == dim) continue;
    if (a.lo[d] != b.lo[d]) return a.lo[d] < b.lo[d];
    if (a.hi[d] != b.hi[d]) return a.hi[d] < b.hi[d];
  }
  return a.lo[dim] < b.lo[dim];
}

bool joined_along(const Box& a, const Box& b, size_t dim) {
  for (size_t d = 0; d < static_cast<size_t>(a.dims); ++d) {
    if (d != dim && (a.lo[d] != b.lo[d] || a.hi[d] != b.hi[d])) return false;
  }
  return a.hi[dim] == b.lo[dim];
}

void merge_along(std::vector<Box>& boxes, size_t dim) {
  std::sort(boxes.begin(), boxes.end(), [dim](const Box& a, const Box& b) { return before_along(a, b, dim); });
  size_t kept = 0;
  for (size_t i = 1; i < boxes.size(); ++i) {
    if (joined_along(boxes[kept], boxes[i], dim)) {
      boxes[kept].hi[dim] = boxes[i].hi[dim];
    } else {
      boxes[++kept] = boxes[i];
    }
  }
  if (!boxes.empty()) boxes.resize(kept + 1);
}

}  // namespace

Grid::Grid(std::span<const Box> boxes) {
  for (const Box& box : boxes) {
    if (box.empty()) continue;
    check(dims_ == 0 || dims_ == box.dims, "boxes of {} and of {} dims overlaid", dims_, box.dims);
    dims_ = box.dims;
    for (size_t d = 0; d < static_cast<size_t>(box.dims); ++d) {
      edges_[d].push_back(box.lo[d]);
      edges_[d].push_back(box.hi[d]);
    }
  }
  if (dims_ == 0) count_[0] = 0;
  for (size_t d = 0; d < static_cast<size_t>(dims_); ++d) {
    std::sort(edges_[d].begin(), edges_[d].end());
    edges_[d].erase(std::unique(edges_[d].begin(), edges_[d].end()), edges_[d].end());
    count_[d] = edges_[d].size() - 1;
  }
}

Box Grid::cell(size_t index) const {
  const std::array<size_t, kMaxDims> at{index / (count_[1] * count_[2]), index / count_[2] % count_[1],
                                        index % count_[2]};
  Box box;
  box.dims = dims_;
  for (size_t d = 0; d < static_cast<size_t>(dims_); ++d) {
    box.lo[d] = edges_[d][at[d]];
    box.hi[d] = edges_[d][at[d] + 1];
  }
  return box;
}

Grid::Range Grid::cells_of(const Box& box) const {
  Range range{{0, 0, 0}, {1, 1, 1}};
  for (size_t d = 0; d < static_cast<size_t>(dims_); ++d) {
    const auto& edges = edges_[d];
    range.lo[d] = static_cast<size_t>(std::lower_bound(edges.begin(), edges.end(), box.lo[d]) - edges.begin());
    range.hi[d] = static_cast<size_t>(std::lower_bound(edges.begin(), edges.end(), box.hi[d]) - edges.begin());
  }
  return range;
}

std::vector<Region> overlay(std::span<const Box> boxes, const Narrow& narrow) {
  const Grid grid(boxes);
  std::vector<std::vector<int>> members(grid.cells());
  for (size_t b = 0; b < boxes.size(); ++b) {
    grid.each_cell(boxes[b], [&](size_t cell) { members[cell].push_back(static_cast<int>(b)); });
  }
  std::unordered_map<std::vector<int>, std::vector<Box>, RangeHash> by_members;
  for (size_t cell = 0; cell < members.size(); ++cell) {
    if (narrow && !members[cell].empty()) narrow(members[cell]);
    if (!members[cell].empty()) by_members[std::move(members[cell])].push_back(grid.cell(cell));
  }
  std::vector<Region> regions;
  for (auto& [group, cells] : by_members) {
    for (const Box& box : merge(std::move(cells))) regions.push_back({box, group});
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.box.lo < b.box.lo; });
  return regions;
}

std::vector<Box> merge(std::vector<Box> boxes) {
  for (size_t before = boxes.size() + 1; boxes.size() > 1 && boxes.size() < before;) {
    before = boxes.size();
    for (int d = boxes[0].dims - 1; d >= 0; --d) merge_along(boxes, static_cast<size_t>(d));
  }
  return boxes;
}

}  // namespace switchyard::layout
