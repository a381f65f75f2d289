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
    if (tensor_ranks_fit(model, tp) && (limits.tp.empty() || std::ranges::count(limits.tp, tp) > 0)) choices.push_back(tp);
  return choices;
}

std::vector<int> stage_choices(const config::ModelConfig& model, int ranks, int tp, const SpaceLimits& limits) {
  std::vector<int> choices;
  for (int pp = 1; pp * tp <= ranks && pp <= model.layers; ++pp)
    if (limits.pp.empty() || std::ranges::count(limits.pp, pp) > 0) choices.push_back(pp);
  return choices;
}

// Of one dp, tp, pp.
std::vector<Placement> placements(int dp, int tp, int pp, i64 layers, const SpaceLimits& limits) {
  std::vector<Placement> all;
  std::set<std::pair<Order, std::vector<int>>> seen;
  for (const Order order : {Order::data_inside, Order::pipeline_inside}) {
    if (order == Order::pipeline_inside && (!limits.both_orders || dp == 1 || pp == 1)) continue;
    for (int less = 0; less <= (pp > 1 ? limits.most_head_layers : 0); ++less) {
      if (layers - pp < less) break;
      const Placement placement{dp, tp, pp, order, less};
      if (seen.emplace(order, layers_of_stages(placement, layers)).second) all.push_back(placement);
    }
  }
  return all;
}

}  // namespace

std::vector<Shape> shapes(const config::ModelConfig& model, int ranks, const SpaceLimits& limits) {
  std::vector<Shape> all;
  for (const int tp : tensor_choices(model, ranks, limits))
    for (const int pp : stage_choices(model, ranks, tp, limits))
      for (const Placement& placement : placements(ranks / (tp * pp), tp, pp, model.layers, limits))
        for (const config::Recompute recompute : limits.recompute)
          for (const config::ScheduleKind schedule : limits.schedules) {
            all.push_back({placement, recompute, schedule});
            if (pp == 1) break;  // of one stage all schedules are the same work
          }
  return all;
}

std::vector<int> layers_of_stages(const Placement& placement, i64 layers) {
  const int pp = placement.pp;
  const i64 spread = layers + placement.head_layers;
  std::vector<int> of(static_cast<size_t>(pp));
  for (int s = 0; s < pp; ++s) of[static_cast<size_t>(s)] = static_cast<int>(spread / pp + (s < spread % pp ? 1 : 0));
  of.back() -= placement.head_layers;
  // A last stage that would be left without a layer gets one from the stages before.
  for (int s = pp - 2; s >= 0 && of.back() < 1; --s)
    while (of[static_cast<size_t>(s)] > 1 && of.back() < 1) {
      --of[static_cast<size_t>(s)];
      ++of.back();
    }
  return of;
}

int first_rank(const Placement& p, int lane, int stage) {
  return (p.order == Order::data_inside ? stage * p.dp + lane : lane * p.pp + stage) * p.tp;
}

bool is_plain(const Placement& placement, i64 layers) {
  Placement plain = placement;
  plain.head_layers = 0;
  return placement.order == Order::data_inside && layers_of_stages(placement, layers) == layers_of_stages(plain, layers);
}

config::Strategy strategy_of(const Shape& shape, i64 layers, i64 capacity) {
  const Placement& p = shape.placement;
  config::Group group{p.dp, {}};
  int layer = 0;
  for (int s = 0; const int count : layers_of_stages(p, layers)) {
    config::Stage stage{{}, p.tp, layer, layer + count};
    for (int lane = 0; lane < p.dp; ++lane)
      for (int t = 0; t < p.tp; ++t) stage.ranks.push_back(first_rank(p, lane, s) + t);
    group.stages.push_back(std::move(stage));
    layer += count;
    ++s;
  }
  config::Strategy strategy;
  strategy.name = to_string(p);
  strategy.groups = {std::move(group)};
  strategy.recompute = shape.recompute;
  strategy.schedule = shape.schedule;
  strategy.micro_batch_tokens = capacity;
  return strategy;
}

std::string to_string(const Placement& p) {
  std::string text = fmt::format("{},{},{}", p.dp, p.tp, p.pp);
  if (p.order == Order::pipeline_inside) text += " pipelines inside";
  if (p.head_layers > 0) text += fmt::format(", head as {} layer{}", p.head_layers, p.head_layers > 1 ? "s" : "");
  return text;
}

std::string to_string(const Shape& shape) {
  std::string text = to_string(shape.placement);
  if (shape.recompute != config::Recompute::none) text += fmt::format(", recompute {}", config::name_of(shape.recompute));
  if (shape.schedule != config::ScheduleKind::one_f_one_b) text += fmt::format(", {}", config::name_of(shape.schedule));
  return text;
}

}  // namespace switchyard::planner
