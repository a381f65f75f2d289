#include "planner/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <span>

#include "base/errors.hpp"

namespace switchyard::planner {
namespace {

// Heads are mostly divided evenly, and other rings and depths than powers of two gain nothing: what matters is how many
// ranks a document has, and how many a copy of the weights. Where only other sizes fill all ranks, they may be the
// best, as the others leave ranks idle; inner and depth then gain little beside outer and ZeRO.
bool may_be(const StageMesh& mesh, const config::ModelConfig& model, bool fills) {
  const int ring = mesh[layout::StageAxis::ring];
  const bool plain = mesh[layout::StageAxis::inner] == 1;
  if (ring > 1 && (!plain || model.attention != config::AttentionKind::fused)) return false;
  const bool even =
      model.heads % mesh.positions() == 0 && std::has_single_bit(static_cast<unsigned>(ring * mesh.replicas()));
  return (even || (fills && plain && mesh.replicas() == 1)) && config::divides_heads(mesh, model);
}

// Meshes of so many ranks on some axes, the last ones first. fills: whether as many stages fill all ranks there are.
void add_meshes(std::span<const layout::StageAxis> axes, int ranks, const config::ModelConfig& model, bool fills,
                StageMesh mesh, std::vector<StageMesh>& all) {
  if (axes.empty()) {
    if (ranks == 1 && may_be(mesh, model, fills)) all.push_back(mesh);
    return;
  }
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    mesh[axes.front()] = size;
    add_meshes(axes.subspan(1), ranks / size, model, fills, mesh, all);
  }
}

std::vector<int> stage_choices(const config::ModelConfig& model, int ranks, int stage_ranks,
                               const SpaceLimits& limits) {
  std::vector<int> choices;
  for (int pp = 1; pp * stage_ranks <= ranks && pp <= model.layers; ++pp)
    if (limits.pp.empty() || std::ranges::count(limits.pp, pp) > 0) choices.push_back(pp);
  return choices;
}

// Placements with the given dp, mesh, pp and path of chunks.
std::vector<Placement> placements(const Placement& plain, i64 layers, const SpaceLimits& limits) {
  std::vector<Placement> all;
  std::set<std::pair<config::Inside, std::vector<int>>> seen;
  for (const config::Inside inside : {config::Inside::data, config::Inside::pipeline}) {
    if (inside == config::Inside::pipeline && (!limits.both_orders || plain.dp == 1 || plain.pp == 1)) continue;
    for (int less = 0; less <= (plain.pp > 1 ? limits.most_head_layers : 0); ++less) {
      if (layers - plain.positions() < less) break;
      Placement placement = plain;
      placement.inside = inside;
      placement.head_layers = less;
      if (seen.emplace(inside, layers_of_positions(placement, layers)).second) all.push_back(placement);
    }
  }
  return all;
}

struct Manner {
  config::ScheduleKind schedule;
  int activation_cap = 0, every = 1, zero = 1;
};

std::vector<Manner> manners(const Placement& p, const SpaceLimits& limits) {
  using config::ScheduleKind;
  std::vector<Manner> all;
  for (const ScheduleKind kind : limits.schedules) {
    const bool loops = kind == ScheduleKind::interleaved, turns = kind == ScheduleKind::zb_v;
    if ((p.path == schedule::Placement::v) != turns) continue;
    if (kind == ScheduleKind::zeropp) {
      Placement gathers = p;
      if (gathers.cuts(3) == 1) gathers.zero = 3;
      if (p.pp > 1 && gathers.cuts(3) > 1)
        for (const int every : {p.pp, 2 * p.pp - 1, 4 * p.pp - 2}) all.push_back({kind, 0, every, gathers.zero});
      continue;
    }
    if ((p.chunks > 1) != (loops || turns)) continue;
    if (p.pp == 1) return {{kind}};  // with one stage all schedules do the same work
    all.push_back({kind});
    if (kind == ScheduleKind::zero_bubble) all.push_back({kind, 2 * p.pp});
  }
  return all;
}

// Placements with one chunk, with several in a loop, and with two on a V-shaped path.
std::vector<Placement> ways(const Placement& plain, i64 layers, const SpaceLimits& limits) {
  std::vector<Placement> all = {plain};
  const int pp = plain.pp;
  if (pp == 1) return all;
  for (int chunks = 2; chunks <= limits.most_chunks && pp * chunks <= layers; ++chunks) {
    all.push_back(plain);
    all.back().chunks = chunks;
  }
  if (2 * pp <= layers) {
    all.push_back(plain);
    all.back().chunks = 2;
    all.back().path = schedule::Placement::v;
  }
  return all;
}

// The levels of recomputation that differ on a mesh, from none to full.
std::vector<config::Recompute> levels(const StageMesh& mesh, const SpaceLimits& limits) {
  std::vector<config::Recompute> all;
  for (const config::Recompute level : limits.recompute)
    if (const config::Recompute here = std::max(level, least_recompute(mesh)); std::ranges::count(all, here) == 0)
      all.push_back(here);
  return all;
}

void add_shapes(const Placement& way, i64 layers, const SpaceLimits& limits, std::vector<Shape>& all) {
  const std::vector<Manner> how = manners(way, limits);
  if (how.empty()) return;
  const std::vector<config::Recompute> recomputed = levels(way.mesh, limits);
  for (Placement placement : placements(way, layers, limits))
    for (const config::Recompute recompute : recomputed)
      for (const Manner& manner : how) {
        placement.zero = manner.zero;
        all.push_back({.placement = placement,
                       .recompute = recompute,
                       .schedule = manner.schedule,
                       .activation_cap = manner.activation_cap,
                       .every = manner.every});
      }
}

// A shape's name: its placement and schedule.
std::string strategy_name(const Shape& shape) {
  config::StrategySettings settings;
  const config::StrategySettings all = settings_of(shape);
  settings.zero = all.zero;
  settings.schedule = all.schedule;
  settings.chunks = all.chunks;
  return config::to_text(degrees_of(shape.placement), settings);
}

}  // namespace

std::optional<Placement> cut_further(const Placement& placement) {
  if (placement.zero == 3 || placement.copies() == placement.mesh.replicas()) return std::nullopt;
  Placement cut = placement;
  ++cut.zero;
  return cut;
}

Placement leanest(Placement placement) {
  while (const std::optional<Placement> cut = cut_further(placement)) placement = *cut;
  return placement;
}

std::vector<layout::StageAxis> stage_axes() {
  std::vector<layout::StageAxis> axes;
  for (const layout::StageAxisInfo& info : layout::stage_axes())
    if (info.searched) axes.push_back(info.axis);
  return axes;
}

std::vector<Shape> shapes(const config::ModelConfig& model, int ranks, const SpaceLimits& limits) {
  std::vector<Shape> all;
  for (int stage_ranks = 1; stage_ranks <= ranks; ++stage_ranks) {
    if (!limits.stage_ranks.empty() && std::ranges::count(limits.stage_ranks, stage_ranks) == 0) continue;
    std::vector<StageMesh> meshes;
    add_meshes(limits.axes, stage_ranks, model, ranks % stage_ranks == 0, {}, meshes);
    for (const int pp : stage_choices(model, ranks, stage_ranks, limits))
      for (const StageMesh& mesh : meshes)
        for (const Placement& way : ways({ranks / (stage_ranks * pp), mesh, pp}, model.layers, limits))
          add_shapes(way, model.layers, limits, all);
  }
  return all;
}

bool is_usual(const Shape& shape) {
  const Placement& p = shape.placement;
  const auto power = [](int degree) { return std::has_single_bit(static_cast<unsigned>(degree)); };
  const bool plain = p.mesh[layout::StageAxis::inner] == 1 && p.mesh[layout::StageAxis::depth] == 1;
  return plain && power(p.pp) && power(p.stage_ranks()) && power(p.chunks) && shape.activation_cap == 0 &&
         shape.every == 1 && shape.schedule != config::ScheduleKind::zero_bubble &&
         shape.schedule != config::ScheduleKind::gpipe;
}

StageMesh Placement::code_mesh() const {
  StageMesh code = mesh;
  for (const layout::StageAxis axis : layout::axes_outside_code()) code[axis] = 1;
  return code;
}

StageMesh Placement::code_mesh_on_ring() const {
  StageMesh code = code_mesh();
  code[layout::StageAxis::ring] = 2;
  return code;
}

bool has_ring(const StageMesh& mesh) { return mesh[layout::StageAxis::ring] > 1; }

config::Recompute least_recompute(const StageMesh& mesh) {
  const bool gathers = mesh[layout::StageAxis::outer] > 1 || mesh[layout::StageAxis::inner] > 1;
  return gathers ? config::Recompute::none : config::Recompute::gathers;
}

std::uint64_t mesh_key(const StageMesh& mesh) {
  std::uint64_t bits = 1;
  for (const layout::StageAxisInfo& axis : layout::stage_axes()) {
    const auto size = static_cast<std::uint64_t>(mesh[axis.axis]);
    bits = bits << (2 * std::bit_width(size) - 1) | size;  // Elias's gamma code, short where the product is bounded
  }
  return bits;
}

PlacementKey placement_key(const Placement& p) {
  std::uint64_t bits = 0;
  for (const int field : {p.dp, p.pp}) bits = bits << 20 | static_cast<std::uint64_t>(field);
  bits = bits << 10 | static_cast<std::uint64_t>(p.head_layers);
  bits = bits << 8 | static_cast<std::uint64_t>(p.chunks);
  bits = bits << 2 | static_cast<std::uint64_t>(p.zero);
  return {bits << 2 | (p.path == schedule::Placement::v ? 2U : 0U) | (p.inside == config::Inside::data ? 0U : 1U),
          mesh_key(p.mesh)};
}

std::vector<int> layers_of_positions(const Placement& placement, i64 layers) {
  return config::layers_of_positions(placement.positions(), layers, placement.head_layers);
}

int first_rank(const Placement& p, int replica, int stage) {
  return (p.inside == config::Inside::data ? stage * p.dp + replica : replica * p.pp + stage) * p.stage_ranks();
}

config::StrategySettings settings_of(const Shape& shape) {
  const Placement& p = shape.placement;
  config::StrategySettings settings;
  settings.recompute = shape.recompute;
  settings.schedule = shape.schedule;
  settings.chunks = p.chunks > 1 || shape.blockwise() ? p.chunks : 0;
  settings.activation_cap = shape.activation_cap;
  settings.every = shape.every;
  settings.zero = p.zero;
  return settings;
}

config::Strategy strategy_of(const Shape& shape, i64 layers, i64 capacity) {
  const Placement& p = shape.placement;
  StageMesh mesh = p.mesh;
  mesh[layout::StageAxis::data] = p.dp;
  config::Group group;
  int layer = 0;
  for (int position = 0; const int count : layers_of_positions(p, layers)) {
    config::Stage stage{{}, mesh, layer, layer + count};
    for (int replica = 0; replica < p.dp; ++replica)
      for (int t = 0; t < p.stage_ranks(); ++t) stage.ranks.push_back(first_rank(p, replica, p.stage_of(position)) + t);
    group.stages.push_back(std::move(stage));
    layer += count;
    ++position;
  }
  config::Strategy strategy{settings_of(shape)};
  strategy.name = strategy_name(shape);
  strategy.groups = {std::move(group)};
  strategy.micro_batch_tokens = capacity;
  return strategy;
}

config::Degrees degrees_of(const Placement& p) {
  StageMesh mesh = p.mesh;
  mesh[layout::StageAxis::data] = p.dp;
  config::Degrees degrees = config::degrees_of(mesh);
  degrees.pp = p.pp;
  degrees.inside = p.inside;
  degrees.head_layers = p.head_layers;
  return degrees;
}

std::string to_string(const Placement& p) {
  Shape shape{p};
  if (p.chunks > 1)
    shape.schedule = p.path == schedule::Placement::v ? config::ScheduleKind::zb_v : config::ScheduleKind::interleaved;
  return to_string(shape);
}

std::string to_string(const Shape& shape) { return config::to_text(degrees_of(shape.placement), settings_of(shape)); }

}  // namespace switchyard::planner
