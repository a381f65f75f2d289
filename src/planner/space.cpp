#include "planner/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/errors.hpp"

namespace switchyard::planner {
namespace {

bool tensor_ranks_fit(const config::ModelConfig& model, int tp) {
  return model.heads % tp == 0 && (tp <= model.kv_heads || tp % model.kv_heads == 0);
}

std::vector<int> tensor_choices(const config::ModelConfig& model, int ranks, const SpaceLimits& limits) {
  std::vector<int> choices;
  for (int tp = 1; tp <= ranks && tp <= model.heads; ++tp)
    if (tensor_ranks_fit(model, tp) && (limits.tp.empty() || std::ranges::count(limits.tp, tp) > 0))
      choices.push_back(tp);
  return choices;
}

std::vector<int> stage_choices(const config::ModelConfig& model, int ranks, int tp, const SpaceLimits& limits) {
  std::vector<int> choices;
  for (int pp = 1; pp * tp <= ranks && pp <= model.layers; ++pp)
    if (limits.pp.empty() || std::ranges::count(limits.pp, pp) > 0) choices.push_back(pp);
  return choices;
}

// Placements with the given dp, tp, pp and path of chunks.
std::vector<Placement> placements(const Placement& plain, i64 layers, const SpaceLimits& limits) {
  std::vector<Placement> all;
  std::set<std::pair<Order, std::vector<int>>> seen;
  for (const Order order : {Order::data_inside, Order::pipeline_inside}) {
    if (order == Order::pipeline_inside && (!limits.both_orders || plain.dp == 1 || plain.pp == 1)) continue;
    for (int less = 0; less <= (plain.pp > 1 ? limits.most_head_layers : 0); ++less) {
      if (layers - plain.positions() < less) break;
      Placement placement = plain;
      placement.order = order;
      placement.head_layers = less;
      if (seen.emplace(order, layers_of_positions(placement, layers)).second) all.push_back(placement);
    }
  }
  return all;
}

// A schedule and its activation cap.
using Manner = std::pair<config::ScheduleKind, int>;

std::vector<Manner> manners(const Placement& p, const SpaceLimits& limits) {
  using config::ScheduleKind;
  std::vector<Manner> all;
  for (const ScheduleKind kind : limits.schedules) {
    const bool loops = kind == ScheduleKind::interleaved, turns = kind == ScheduleKind::zb_v;
    if ((p.chunks > 1) != (loops || turns) || (p.path == schedule::Placement::v) != turns) continue;
    if (p.pp == 1) return {{kind, 0}};  // with one stage all schedules do the same work
    all.emplace_back(kind, 0);
    if (kind == ScheduleKind::zero_bubble) all.emplace_back(kind, 2 * p.pp);
  }
  return all;
}

// Placements with one chunk, with several in a loop, and with two on a V-shaped path.
std::vector<Placement> ways(int dp, int tp, int pp, i64 layers, const SpaceLimits& limits) {
  const Placement plain{dp, tp, pp};
  std::vector<Placement> all = {plain};
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

void add_shapes(const Placement& way, i64 layers, const SpaceLimits& limits, std::vector<Shape>& all) {
  const std::vector<Manner> how = manners(way, limits);
  if (how.empty()) return;
  for (const Placement& placement : placements(way, layers, limits))
    for (const config::Recompute recompute : limits.recompute)
      for (const auto& [schedule, cap] : how) all.push_back({placement, recompute, schedule, cap});
}

}  // namespace

std::vector<Shape> shapes(const config::ModelConfig& model, int ranks, const SpaceLimits& limits) {
  std::vector<Shape> all;
  for (const int tp : tensor_choices(model, ranks, limits))
    for (const int pp : stage_choices(model, ranks, tp, limits))
      for (const Placement& way : ways(ranks / (tp * pp), tp, pp, model.layers, limits))
        add_shapes(way, model.layers, limits, all);
  return all;
}

std::uint64_t placement_key(const Placement& p) {
  std::uint64_t bits = 0;
  for (const int field : {p.dp, p.tp, p.pp}) bits = bits << 17 | static_cast<std::uint64_t>(field);
  bits = bits << 7 | static_cast<std::uint64_t>(p.head_layers);
  bits = bits << 4 | static_cast<std::uint64_t>(p.chunks);
  return bits << 2 | (p.path == schedule::Placement::v ? 2U : 0U) | (p.order == Order::data_inside ? 0U : 1U);
}

std::vector<int> layers_of_positions(const Placement& placement, i64 layers) {
  const int positions = placement.positions();
  const i64 spread = layers + placement.head_layers;
  std::vector<int> of(static_cast<size_t>(positions));
  for (int at = 0; at < positions; ++at)
    of[static_cast<size_t>(at)] = static_cast<int>(spread / positions + (at < spread % positions ? 1 : 0));
  of.back() -= placement.head_layers;
  // The last position gets layers from earlier ones if it would otherwise have none.
  for (int at = positions - 2; at >= 0 && of.back() < 1; --at)
    while (of[static_cast<size_t>(at)] > 1 && of.back() < 1) {
      --of[static_cast<size_t>(at)];
      ++of.back();
    }
  return of;
}

int first_rank(const Placement& p, int replica, int stage) {
  return (p.order == Order::data_inside ? stage * p.dp + replica : replica * p.pp + stage) * p.tp;
}

bool is_plain(const Placement& placement, i64 layers) {
  Placement plain = placement;
  plain.head_layers = 0;
  return placement.order == Order::data_inside &&
         layers_of_positions(placement, layers) == layers_of_positions(plain, layers);
}

config::Strategy strategy_of(const Shape& shape, i64 layers, i64 capacity) {
  const Placement& p = shape.placement;
  const config::StageMesh mesh{{config::StageAxis::data, p.dp}, {config::StageAxis::outer, p.tp}};
  config::Group group;
  int layer = 0;
  for (int position = 0; const int count : layers_of_positions(p, layers)) {
    config::Stage stage{{}, mesh, layer, layer + count};
    for (int replica = 0; replica < p.dp; ++replica)
      for (int t = 0; t < p.tp; ++t) stage.ranks.push_back(first_rank(p, replica, p.stage_of(position)) + t);
    group.stages.push_back(std::move(stage));
    layer += count;
    ++position;
  }
  config::Strategy strategy;
  strategy.name = to_string(p);
  strategy.groups = {std::move(group)};
  strategy.recompute = shape.recompute;
  strategy.schedule = shape.schedule;
  strategy.chunks = p.chunks > 1 ? p.chunks : 0;
  strategy.activation_cap = shape.activation_cap;
  strategy.micro_batch_tokens = capacity;
  return strategy;
}

std::string to_string(const Placement& p) {
  std::string text = fmt::format("{},{},{}", p.dp, p.tp, p.pp);
  if (p.order == Order::pipeline_inside) text += ", stages within a host";
  if (p.head_layers > 0)
    text += fmt::format(", last stage {} layer{} fewer", p.head_layers, p.head_layers > 1 ? "s" : "");
  if (p.path == schedule::Placement::v)
    text += ", zb-v";
  else if (p.chunks > 1)
    text += fmt::format(", interleaved {}", p.chunks);
  return text;
}

std::string to_string(const Shape& shape) {
  std::string text = to_string(shape.placement);
  if (shape.recompute != config::Recompute::none)
    text += fmt::format(", recompute {}", config::name_of(shape.recompute));
  if (shape.schedule != config::ScheduleKind::one_f_one_b && shape.placement.chunks == 1)
    text += fmt::format(", {}", config::name_of(shape.schedule));
  if (shape.activation_cap > 0) text += fmt::format(", {} activations", shape.activation_cap);
  return text;
}

}  // namespace switchyard::planner
