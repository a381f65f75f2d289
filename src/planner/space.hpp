// The planner's search space: everything that a strategy of a bucket may be.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "cluster/hardware.hpp"
#include "config/model.hpp"
#include "config/strategy.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::planner {

/// Which ranks lie next to each other after those of a tensor group: the same stage of the next pipeline, or the next
/// stage.
enum class Order { data_inside, pipeline_inside };

/// Who holds which layers: dp pipelines of pp stages of tp ranks, each stage with `chunks` parts of the model.
/// head_layers: so many layers the last position of the pipeline has fewer, for its head; the others are spread evenly,
/// the first positions getting one more.
struct Placement {
  int dp = 1, tp = 1, pp = 1;
  Order order = Order::data_inside;
  int head_layers = 0;
  int chunks = 1;
  schedule::Placement path = schedule::Placement::loop;  // of the chunks
  int ranks() const { return dp * tp * pp; }
  int positions() const { return pp * chunks; }
  int stage_of(int position) const { return schedule::stage_of(path, pp, position); }
  auto operator<=>(const Placement&) const = default;
};

/// Where master weights, moments and summed gradients are, on the ranks of a placement. zero: 1 gives each replica its
/// share of its part (ZeRO-1); 0 all of it, and gradients are added up as with 1, then spread.
struct Home {
  Placement placement;
  int zero = 1;
  bool copies() const { return zero == 0 && placement.dp > 1; }
  auto operator<=>(const Home&) const = default;
};

/// A placement and how it works on micro-batches, whose capacity is chosen for each range of lengths.
struct Shape {
  Placement placement;
  config::Recompute recompute = config::Recompute::none;
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int activation_cap = 0;  // as in config::StrategySettings
  bool splits_gradients() const {
    return schedule == config::ScheduleKind::zero_bubble || schedule == config::ScheduleKind::zb_v;
  }
  auto operator<=>(const Shape&) const = default;
};

/// What the search may choose from. Empty tp or pp: all that the model and the ranks allow.
struct SpaceLimits {
  std::vector<int> tp{}, pp{};
  int most_head_layers = 2;
  bool both_orders = true;
  std::vector<config::Recompute> recompute = {config::Recompute::none, config::Recompute::selective,
                                              config::Recompute::full};
  std::vector<config::ScheduleKind> schedules = {config::ScheduleKind::one_f_one_b, config::ScheduleKind::gpipe,
                                                 config::ScheduleKind::interleaved, config::ScheduleKind::zero_bubble,
                                                 config::ScheduleKind::zb_v};
  int most_chunks = 4;  // of interleaved
};

/// All shapes, in a fixed order, those of equal placement one after the other. tp: divisors of the heads that
/// config::validate takes; pp: any number of stages up to the layers; dp: as many pipelines as fit the ranks; chunks:
/// as many as have a layer. zero_bubble comes with the memory of 1F1B and with twice as much. Placements that are the
/// same ranks and layers as an earlier one are left out.
std::vector<Shape> shapes(const config::ModelConfig& model, int ranks, const SpaceLimits& limits);

/// Layers of each position of the pipeline: of each stage, if there is one chunk.
std::vector<int> layers_of_positions(const Placement& placement, i64 layers);
/// First of the tp ranks, which follow one another, of a pipeline's stage.
int first_rank(const Placement& placement, int replica, int stage);
/// Whether config::strategy_from_spec gives the same ranks and layers.
bool is_plain(const Placement& placement, i64 layers);

/// As a job has it, with micro-batches of at most `capacity` tokens.
config::Strategy strategy_of(const Shape& shape, i64 layers, i64 capacity);
/// "2,4,1" and what differs from the usual: "2,2,2 pipelines inside, last stage 1 layer short".
std::string to_string(const Placement& placement);
/// The same with recomputation and schedule, where they aren't none and what the placement tells.
std::string to_string(const Shape& shape);

}  // namespace switchyard::planner
