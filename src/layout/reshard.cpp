#include "layout/reshard.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/errors.hpp"

namespace switchyard::layout {
namespace {

/// The layout without axes of size 1.
Layout essential(const Mesh& mesh, const Layout& layout) {
  const auto keep = [&](const std::vector<int>& axes) {
    std::vector<int> kept;
    for (const int axis : axes) {
      if (mesh.axes[static_cast<size_t>(axis)].size > 1) kept.push_back(axis);
    }
    return kept;
  };
  Layout result;
  for (const auto& axes : layout.split) result.split.push_back(keep(axes));
  result.partial = keep(layout.partial);
  std::sort(result.partial.begin(), result.partial.end());
  return result;
}

bool starts_with(const std::vector<int>& axes, const std::vector<int>& start) {
  return axes.size() >= start.size() && std::equal(start.begin(), start.end(), axes.begin());
}

/// The axes that `more` adds to `less`: in each dim, those after the axes of `less`.
struct Growth {
  bool possible = true;   // every dim of `less` starts the same dim of `more`
  std::vector<int> axes;  // in order of the dims
  std::vector<int> dims;  // those that grew
  int dim() const { return dims.size() == 1 ? dims[0] : -1; }
};

Growth growth(const Layout& less, const Layout& more) {
  Growth result;
  for (size_t d = 0; d < less.split.size(); ++d) {
    const auto& before = less.split[d];
    const auto& after = more.split[d];
    if (!starts_with(after, before)) return {false, {}, {}};
    if (after.size() > before.size()) result.dims.push_back(static_cast<int>(d));
    result.axes.insert(result.axes.end(), after.begin() + static_cast<std::ptrdiff_t>(before.size()), after.end());
  }
  return result;
}

/// The collective from a layout that is partial over more axes than `to`.
Collective reduction(const Layout& from, const Layout& to) {
  if (!std::includes(from.partial.begin(), from.partial.end(), to.partial.begin(), to.partial.end())) return {};
  std::vector<int> summed;
  std::set_difference(from.partial.begin(), from.partial.end(), to.partial.begin(), to.partial.end(),
                      std::back_inserter(summed));
  const Growth cut = growth(from, to);
  if (!cut.possible) return {};
  if (cut.axes.empty()) return {.pattern = Pattern::all_reduce, .axes = summed};
  std::vector<int> cutting = cut.axes;
  std::sort(cutting.begin(), cutting.end());
  if (cutting == summed) return {.pattern = Pattern::reduce_scatter, .axes = cut.axes, .dim_to = cut.dim()};
  return {};
}

/// The collective by which the innermost axes of one dim become the innermost ones of another.
Collective exchange(const Layout& from, const Layout& to) {
  Layout common = from;  // what both start with
  for (size_t d = 0; d < from.split.size(); ++d) {
    const auto& a = from.split[d];
    const auto& b = to.split[d];
    common.split[d].assign(a.begin(), std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first);
  }
  const Growth lost = growth(common, from), gained = growth(common, to);
  if (lost.dim() < 0 || gained.dim() < 0 || lost.axes != gained.axes) return {};
  return {.pattern = Pattern::all_to_all, .axes = lost.axes, .dim_from = lost.dim(), .dim_to = gained.dim()};
}

}  // namespace

std::string_view name_of(Pattern pattern) {
  constexpr std::array<std::string_view, 8> kNames{"nothing",    "slice",      "all_gather",     "reduce_scatter",
                                                   "all_reduce", "all_to_all", "point_to_point", "general"};
  return kNames[static_cast<size_t>(pattern)];
}

Collective collective_between(const Mesh& mesh, const Layout& from_layout, const Layout& to_layout) {
  const Layout from = essential(mesh, from_layout), to = essential(mesh, to_layout);
  check(from.split.size() == to.split.size(), "layouts of {} and of {} dims", from.split.size(), to.split.size());
  if (from == to) return {.pattern = Pattern::nothing, .axes = {}};
  if (from.partial != to.partial) return reduction(from, to);
  if (const Growth cut = growth(from, to); cut.possible)
    return {.pattern = Pattern::slice, .axes = cut.axes, .dim_to = cut.dim()};
  if (const Growth cut = growth(to, from); cut.possible)
    return {.pattern = Pattern::all_gather, .axes = cut.axes, .dim_from = cut.dim()};
  return exchange(from, to);
}

Collective collective_between(const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh, const Layout& to) {
  if (from_mesh.axes != to_mesh.axes) return {};
  if (from_mesh.ranks == to_mesh.ranks) return collective_between(from_mesh, from, to);
  const bool same = essential(from_mesh, from) == essential(to_mesh, to);
  return {.pattern = same ? Pattern::point_to_point : Pattern::general, .axes = {}};
}

Pattern classify(const Mesh& mesh, const Layout& from, const Layout& to) {
  return collective_between(mesh, from, to).pattern;
}

void sort_messages(std::vector<Msg>& messages) {
  std::sort(messages.begin(), messages.end(), [](const Msg& a, const Msg& b) {
    return std::tie(a.src, a.dst, a.tensor, a.box.lo) < std::tie(b.src, b.dst, b.tensor, b.box.lo);
  });
}

}  // namespace switchyard::layout
