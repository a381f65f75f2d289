#include "layout/layout.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/errors.hpp"
#include "layout/overlay.hpp"

namespace switchyard::layout {
namespace {

std::string axis_names(const Mesh& mesh, const std::vector<int>& axes) {
  std::vector<std::string> names;
  for (const int axis : axes) names.push_back(mesh.axes[static_cast<size_t>(axis)].name);
  return fmt::format("{{{}}}", fmt::join(names, ","));
}

/// Checks that each axis exists and is used at most once.
void check_axes(const Mesh& mesh, const Layout& layout, const Shape& shape) {
  // Messages are made for errors only.
  if (layout.split.size() != shape.size.size())
    throw InternalError(fmt::format("layout {} for a tensor of {} dims", to_string(mesh, layout), shape.dims()));
  std::vector<bool> used(mesh.axes.size());
  const auto use = [&](int axis) {
    check(static_cast<size_t>(axis) < used.size(), "axis {} of a mesh with {} axes", axis, used.size());
    if (used[static_cast<size_t>(axis)])
      throw InternalError(fmt::format("layout {} uses axis \"{}\" twice", to_string(mesh, layout),
                                      mesh.axes[static_cast<size_t>(axis)].name));
    used[static_cast<size_t>(axis)] = true;
  };
  for (const auto& axes : layout.split) std::for_each(axes.begin(), axes.end(), use);
  std::for_each(layout.partial.begin(), layout.partial.end(), use);
}

Box box_at(const Mesh& mesh, const Layout& layout, const Shape& shape, int position) {
  Box box = whole(shape.size);
  for (size_t d = 0; d < layout.split.size(); ++d) {
    const std::span<const i64> alignments =
        d < shape.alignment.size() ? std::span<const i64>(shape.alignment[d]) : std::span<const i64>();
    for (const int axis : layout.split[d]) {
      const i64 parts = mesh.axes[static_cast<size_t>(axis)].size;
      const i64 part = mesh.coordinate(position, axis);
      const i64 size = box.hi[d] - box.lo[d];
      box.hi[d] = box.lo[d] + cut_start(size, alignments, part + 1, parts);
      box.lo[d] = box.lo[d] + cut_start(size, alignments, part, parts);
    }
  }
  return box;
}

ShardMap joined(const std::vector<ShardMap>& maps, bool renumber) {
  check(!maps.empty(), "no shard maps to join");
  ShardMap all{maps[0].shape, renumber ? 0 : 1, {}};
  for (const ShardMap& map : maps) {
    check(map.shape.size == all.shape.size, "shard maps of sizes {} and {} joined", all.shape.size, map.shape.size);
    check(renumber || map.partials == 1, "copies of a value with {} partials", map.partials);
    for (Shard shard : map.shards) {
      if (renumber) shard.partial += all.partials;
      all.shards.push_back(shard);
    }
    if (renumber) all.partials += map.partials;
  }
  return all;
}

}  // namespace

int Mesh::find(const std::string& name) const {
  const auto at = std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return at == axes.end() ? -1 : static_cast<int>(at - axes.begin());
}

int Mesh::coordinate(int position, int axis) const {
  int stride = 1;
  for (size_t a = axes.size(); a-- > static_cast<size_t>(axis) + 1;) stride *= axes[a].size;
  return position / stride % axes[static_cast<size_t>(axis)].size;
}

std::vector<int> Mesh::peers(int position, const std::vector<int>& along) const {
  std::vector<int> result{position};
  for (const int axis : along) {
    int stride = 1;
    for (size_t a = axes.size(); a-- > static_cast<size_t>(axis) + 1;) stride *= axes[a].size;
    std::vector<int> wider;
    for (const int peer : result) {
      const int first = peer - coordinate(peer, axis) * stride;
      for (int c = 0; c < axes[static_cast<size_t>(axis)].size; ++c) wider.push_back(first + c * stride);
    }
    result = std::move(wider);
  }
  return result;
}

void validate(const Mesh& mesh) {
  i64 product = 1;
  std::set<std::string> names;
  for (const Axis& axis : mesh.axes) {
    check(axis.size > 0, "mesh axis \"{}\" has size {}", axis.name, axis.size);
    check(names.insert(axis.name).second, "mesh has two axes \"{}\"", axis.name);
    product *= axis.size;
  }
  check(product == mesh.size(), "mesh axes have {} positions for {} ranks", product, mesh.size());
  check(std::set<int>(mesh.ranks.begin(), mesh.ranks.end()).size() == mesh.ranks.size(), "mesh ranks {} repeat",
        mesh.ranks);
  check(std::all_of(mesh.ranks.begin(), mesh.ranks.end(), [](int rank) { return rank >= 0; }), "negative rank in {}",
        mesh.ranks);
}

bool differ_along(const Layout& a, const Layout& b, std::span<const int> axes) {
  const auto has = [](const std::vector<int>& list, int axis) { return std::ranges::count(list, axis) > 0; };
  return std::ranges::any_of(axes, [&](int axis) {
    if (has(a.partial, axis) != has(b.partial, axis)) return true;
    return !std::ranges::equal(a.split, b.split, [&](const std::vector<int>& one, const std::vector<int>& other) {
      return has(one, axis) == has(other, axis);
    });
  });
}

bool is_first_copy(const Mesh& mesh, const Layout& layout, int position) {
  for (int axis = 0; axis < static_cast<int>(mesh.axes.size()); ++axis) {
    const auto has = [axis](const std::vector<int>& axes) { return std::ranges::find(axes, axis) != axes.end(); };
    if (!has(layout.partial) && std::ranges::none_of(layout.split, has) && mesh.coordinate(position, axis) != 0)
      return false;
  }
  return true;
}

Layout replicated(int dims) { return {std::vector<std::vector<int>>(static_cast<size_t>(dims)), {}}; }

std::string to_string(const Mesh& mesh, const Layout& layout) {
  std::vector<std::string> dims;
  for (const auto& axes : layout.split) dims.push_back(axis_names(mesh, axes));
  const std::string split = fmt::format("{}", fmt::join(dims, ","));
  return layout.partial.empty() ? split : fmt::format("{} partial {}", split, axis_names(mesh, layout.partial));
}

Box shard_box(const Mesh& mesh, const Layout& layout, const Shape& shape, int position) {
  check_axes(mesh, layout, shape);
  return box_at(mesh, layout, shape, position);
}

ShardMap expand(const Mesh& mesh, const Layout& layout, const Shape& shape) {
  check_axes(mesh, layout, shape);
  ShardMap map{shape, 1, {}};
  for (const int axis : layout.partial) map.partials *= mesh.axes[static_cast<size_t>(axis)].size;
  map.shards.reserve(mesh.ranks.size());
  for (int position = 0; position < mesh.size(); ++position) {
    int partial = 0;
    for (const int axis : layout.partial)
      partial = partial * mesh.axes[static_cast<size_t>(axis)].size + mesh.coordinate(position, axis);
    map.shards.push_back({mesh.ranks[static_cast<size_t>(position)], partial, box_at(mesh, layout, shape, position)});
  }
  return map;
}

ShardMap expand_rows(const Mesh& mesh, const Layout& layout, const Shape& shape, const std::vector<int>& axes) {
  Layout summed = layout;
  std::erase_if(summed.partial, [&](int axis) { return std::ranges::find(axes, axis) != axes.end(); });
  ShardMap map = expand(mesh, summed, shape);
  for (size_t position = 0; position < map.shards.size(); ++position) {
    Box& box = map.shards[position].box;
    for (const int axis : axes) {
      const i64 first = box.lo[0], rows = box.size(0), parts = mesh.axes[static_cast<size_t>(axis)].size;
      const i64 part = mesh.coordinate(static_cast<int>(position), axis);
      box.lo[0] = first + cut_start(rows, {}, part, parts);
      box.hi[0] = first + cut_start(rows, {}, part + 1, parts);
    }
  }
  std::erase_if(map.shards, [](const Shard& shard) { return shard.box.empty(); });
  return map;
}

ShardMap as_copies(const std::vector<ShardMap>& maps) { return joined(maps, false); }
ShardMap as_partials(const std::vector<ShardMap>& maps) { return joined(maps, true); }

ShardMap one_owner(const ShardMap& map) {
  check(map.partials == 1, "one owner of a value with {} partials", map.partials);
  std::vector<Box> boxes;
  for (const Shard& shard : map.shards) boxes.push_back(shard.box);
  std::map<int, std::vector<Box>> owned;
  for (const Region& region : overlay(boxes)) {
    std::vector<int> holders;
    for (const int member : region.members) {
      const int rank = map.shards[static_cast<size_t>(member)].rank;
      if (std::find(holders.begin(), holders.end(), rank) == holders.end()) holders.push_back(rank);
    }
    const i64 parts = static_cast<i64>(holders.size());
    for (i64 part = 0; part < parts; ++part) {
      Box rows = region.box;
      rows.lo[0] = region.box.lo[0] + cut_start(region.box.size(0), {}, part, parts);
      rows.hi[0] = region.box.lo[0] + cut_start(region.box.size(0), {}, part + 1, parts);
      if (!rows.empty()) owned[holders[static_cast<size_t>(part)]].push_back(rows);
    }
  }
  ShardMap home{map.shape, 1, {}};
  for (auto& [rank, rows] : owned) {
    for (const Box& box : merge(std::move(rows))) home.shards.push_back({rank, 0, box});
  }
  return home;
}

void validate(const ShardMap& map, bool exactly_once) {
  const Box all = whole(map.shape.size);
  std::vector<Box> boxes{all};
  for (const Shard& shard : map.shards) {
    check(shard.rank >= 0 && shard.partial >= 0 && shard.partial < map.partials, "shard of rank {}, partial {} of {}",
          shard.rank, shard.partial, map.partials);
    check(all.contains(shard.box), "shard {} of rank {} lies outside {}", shard.box, shard.rank, all);
    boxes.push_back(shard.box);
  }
  const Grid grid(boxes);
  std::vector<int> holder(grid.cells() * static_cast<size_t>(map.partials), -1);
  for (const Shard& shard : map.shards) {
    grid.each_cell(shard.box, [&](size_t cell) {
      int& rank = holder[cell * static_cast<size_t>(map.partials) + static_cast<size_t>(shard.partial)];
      check(!exactly_once || rank < 0, "box {} is held by ranks {} and {}", grid.cell(cell), rank, shard.rank);
      rank = shard.rank;
    });
  }
  for (size_t i = 0; i < holder.size(); ++i) {
    check(holder[i] >= 0, "box {} of partial {} is on no rank", grid.cell(i / static_cast<size_t>(map.partials)),
          i % static_cast<size_t>(map.partials));
  }
}

}  // namespace switchyard::layout
