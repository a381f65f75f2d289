#include "layout/shape.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::layout {
namespace {

i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

}  // namespace

i64 Box::elements() const {
  if (dims == 0) return 0;
  i64 count = 1;
  for (int d = 0; d < dims; ++d) count *= size(d);
  return count;
}

bool Box::contains(const Box& other) const {
  if (other.empty()) return true;
  for (size_t d = 0; d < static_cast<size_t>(dims); ++d) {
    if (other.lo[d] < lo[d] || other.hi[d] > hi[d]) return false;
  }
  return other.dims == dims;
}

Box whole(std::span<const i64> size) {
  check(size.size() <= kMaxDims, "a tensor of {} dims; at most {} are supported", size.size(), kMaxDims);
  Box box;
  box.dims = static_cast<int>(size.size());
  std::copy(size.begin(), size.end(), box.hi.begin());
  return box;
}

Box intersect(const Box& a, const Box& b) {
  check(a.dims == b.dims, "boxes {} and {} differ in their number of dims", a, b);
  Box common;
  common.dims = a.dims;
  for (size_t d = 0; d < static_cast<size_t>(a.dims); ++d) {
    common.lo[d] = std::max(a.lo[d], b.lo[d]);
    common.hi[d] = std::min(a.hi[d], b.hi[d]);
    if (common.lo[d] >= common.hi[d]) {
      Box none;
      none.dims = a.dims;
      return none;
    }
  }
  return common;
}

std::vector<Box> subtract(const Box& a, const Box& b) {
  if (a.empty()) return {};
  const Box common = intersect(a, b);
  if (common.empty()) return {a};
  std::vector<Box> rest;
  Box core = a;  // what is left once the slabs before and after `common` are cut off, dim by dim
  for (size_t d = 0; d < static_cast<size_t>(a.dims); ++d) {
    Box before = core, after = core;
    before.hi[d] = common.lo[d];
    after.lo[d] = common.hi[d];
    if (!before.empty()) rest.push_back(before);
    if (!after.empty()) rest.push_back(after);
    core.lo[d] = common.lo[d];
    core.hi[d] = common.hi[d];
  }
  return rest;
}

std::string to_string(const Box& box) {
  std::string text;
  for (size_t d = 0; d < static_cast<size_t>(box.dims); ++d) {
    text += fmt::format("{}[{},{})", d == 0 ? "" : "x", box.lo[d], box.hi[d]);
  }
  return text;
}

i64 Shape::elements() const { return whole(size).elements(); }

Shape plain(std::vector<i64> size) {
  Shape shape;
  shape.alignment.resize(size.size());
  shape.size = std::move(size);
  return shape;
}

i64 cut_start(i64 n, std::span<const i64> alignments, i64 part, i64 parts) {
  check(parts > 0 && part >= 0 && part <= parts && n >= 0, "part {} of {} of {} elements", part, parts, n);
  i64 g = alignments.empty() ? 1 : alignments.back();
  for (const i64 alignment : alignments) {
    check(alignment > 0, "alignment {} of a cut", alignment);
    if (ceil_div(n, alignment) >= parts) {
      g = alignment;
      break;
    }
  }
  return std::min(n, g * (part * ceil_div(n, g) / parts));
}

}  // namespace switchyard::layout
