// The planner's search space: all strategies that a bucket may have.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/hardware.hpp"
#include "config/model.hpp"
#include "config/strategy.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::planner {

using layout::StageMesh;

/// Who holds which layers: dp times pp stages whose ranks lie on `mesh`, each stage with `chunks` parts of the model.
/// mesh: how the ranks of a stage divide documents, tokens and weights; its data axis is 1.
/// zero: what the ranks that would hold copies cut among themselves (config::StrategySettings::zero): 1 nothing, 2 sums
/// of gradients, 3 parameters, too; where home is copied is Home's business.
/// head_layers: number of layers that the last position of the pipeline has fewer than the others, to make up for its
/// head; the others are distributed evenly, the first positions getting one more.
struct Placement {
  int dp = 1;
  StageMesh mesh{};
  int pp = 1;
  config::Inside inside = config::Inside::data;
  int head_layers = 0;
  int chunks = 1;
  schedule::Placement path = schedule::Placement::loop;  // path of the chunks
  int zero = 1;
  /// Ranks of a stage on the mesh; ring ranks among which those of a pipeline divide documents; those of one ring rank,
  /// and their mesh, for which code is compiled.
  int stage_ranks() const { return static_cast<int>(mesh.ranks()); }
  int ring() const { return mesh[layout::StageAxis::ring]; }
  int code_ranks() const { return static_cast<int>(mesh.positions()); }
  StageMesh code_mesh() const;
  /// The same with a ring, of any size.
  StageMesh code_mesh_on_ring() const;
  int ranks() const { return dp * stage_ranks() * pp; }
  /// Pipelines, each with documents of its own; so many in a row wait for one another at each micro-batch, as their
  /// runs gather parameters or reduce gradients together.
  int pipelines() const { return dp * mesh.replicas(); }
  int tied() const { return zero > 1 ? pipelines() : mesh.replicas(); }
  /// Parts into which ranks that would hold copies cut, from a stage of ZeRO on, parameters between runs (3) or sums of
  /// gradients (2). Replicas of the mesh cut both at any stage.
  int cuts(int from_zero) const { return zero >= from_zero ? copies() : mesh.replicas(); }
  bool runs_transfer() const { return cuts(2) > 1; }
  /// Ranks of a stage that hold the same part of its weights, or would if they didn't cut it.
  int copies() const { return dp * static_cast<int>(mesh.copies()); }
  int positions() const { return pp * chunks; }
  int stage_of(int position) const { return schedule::stage_of(path, pp, position); }
  auto operator<=>(const Placement&) const = default;
};

/// Whether a mesh has several ring ranks.
bool has_ring(const StageMesh& mesh);
/// The least level of recomputation on a mesh: none, or, where nothing is gathered and both are the same, gathers.
config::Recompute least_recompute(const StageMesh& mesh);
/// A key that no other mesh has, of meshes of up to 2^25 ranks.
std::uint64_t mesh_key(const StageMesh& mesh);
/// A key that no other placement has; 0: no placement. Ranks and layers fit into its bits.
using PlacementKey = std::tuple<std::uint64_t, std::uint64_t>;
PlacementKey placement_key(const Placement& placement);

/// Where master weights, moments and summed gradients are, on the ranks of a placement. zero: 1 gives each replica a
/// share of its part (ZeRO-1); 0 gives it all of its part: gradients are summed as with 1, then broadcast.
struct Home {
  Placement placement;
  int zero = 1;
  bool copies() const { return zero == 0 && !placement.runs_transfer() && placement.copies() > 1; }
  /// Ranks among which the optimizer state of a part of the weights is divided.
  int shares() const { return copies() ? 1 : placement.copies(); }
  auto operator<=>(const Home&) const = default;
};

/// A placement and how it works on micro-batches, whose capacity is chosen for each range of lengths.
struct Shape {
  Placement placement;
  config::Recompute recompute = config::Recompute::gathers;
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int activation_cap = 0, every = 1;  // same as in config::StrategySettings
  bool splits_gradients() const {
    return schedule == config::ScheduleKind::zero_bubble || schedule == config::ScheduleKind::zb_v || blockwise();
  }
  /// Whether blocks of `every` micro-batches go through one chunk after the other, and share what is gathered and
  /// reduced for their runs; the last chunk's gradients use the forward passes' copy.
  bool blockwise() const { return schedule == config::ScheduleKind::zeropp; }
  /// Micro-batches of the block that has the given one, and how many blocks there are.
  int block_size(int micro_batch, int micro_batches) const {
    return std::min(every, micro_batches - micro_batch / every * every);
  }
  int blocks(int micro_batches) const { return (micro_batches + every - 1) / every; }
  /// What a stage's runs are made of: recomputation, whether gradients are split, how many micro-batches share what is
  /// gathered for them, and whether the last chunk's passes share it, too. Shapes that have the same of this and of a
  /// placement but for chunks, order and layers have bounds in common.
  using Code = std::tuple<config::Recompute, bool, int, bool>;
  Code code() const { return {recompute, splits_gradients(), every, blockwise()}; }
  auto operator<=>(const Shape&) const = default;
};

/// Axes that may divide the ranks of a stage in one pipeline.
std::vector<layout::StageAxis> stage_axes();

/// The placement with the next stage of ZeRO; nothing where there is none, or nobody would hold a copy.
std::optional<Placement> cut_further(const Placement& placement);
/// The placement cut as far as possible.
Placement leanest(Placement placement);

/// Limits of the search space. Empty stage_ranks (of one pipeline) or pp: all values that the model and the ranks
/// allow.
struct SpaceLimits {
  std::vector<int> stage_ranks{}, pp{};
  std::vector<layout::StageAxis> axes = stage_axes();
  int most_head_layers = 2;
  bool both_orders = true;
  std::vector<config::Recompute> recompute = {config::Recompute::none, config::Recompute::gathers,
                                              config::Recompute::selective, config::Recompute::full};
  std::vector<config::ScheduleKind> schedules = {config::ScheduleKind::one_f_one_b, config::ScheduleKind::gpipe,
                                                 config::ScheduleKind::interleaved, config::ScheduleKind::zero_bubble,
                                                 config::ScheduleKind::zb_v,        config::ScheduleKind::zeropp};
  int most_chunks = 4;  // for interleaved and zeropp
};

/// All shapes, in a fixed order, those of equal placement next to each other, and those of equal dp, stage ranks and
/// pp, too. mesh: every one that config::validate accepts, with a ring only where attention stores no scores and
/// weights are cut in one dim. Its ranks in one pipeline divide the heads, and ring and depth are powers of two; with
/// neither inner nor depth it may have any number of ranks that divides all ranks. pp: any number of stages up to the
/// layers; dp: as many pipelines as fit the ranks; chunks: as many as have at least one layer each. zero_bubble comes
/// with the memory of 1F1B and with twice as much. Placements with the same ranks and layers as an earlier one are left
/// out. zero is 1, as what doesn't fit is cut further where memory is looked at, and 3 for zeropp
/// where nothing else makes its runs gather: it comes with blocks of as many micro-batches as there are stages, of as
/// many as leave no stage idle, and of twice as many. Placements that differ in zero alone count as equal here.
std::vector<Shape> shapes(const config::ModelConfig& model, int ranks, const SpaceLimits& limits);
/// Whether a shape is of the part of the space in which the best plan mostly is, or one that is nearly as quick:
/// degrees that are powers of two, none of inner and depth, and 1F1B, interleaved chunks or ZB-V.
bool is_usual(const Shape& shape);

/// Number of layers of each position of the pipeline (of each stage, if there is one chunk).
std::vector<int> layers_of_positions(const Placement& placement, i64 layers);
/// First of the consecutive ranks of a pipeline's stage.
int first_rank(const Placement& placement, int replica, int stage);

/// The strategy of a job, with micro-batches of at most `capacity` tokens.
config::Strategy strategy_of(const Shape& shape, i64 layers, i64 capacity);
/// The placement's degrees, as a job names them.
config::Degrees degrees_of(const Placement& placement);
/// What a strategy of the shape has besides, as a job names it.
config::StrategySettings settings_of(const Shape& shape);
/// A strategy's text (config::to_text): "2,4,1", "dp=2,tp=2,pp=2,recompute=full,inside=pipeline,head_layers=1".
std::string to_string(const Shape& shape);
/// The same with a schedule that the placement allows.
std::string to_string(const Placement& placement);

}  // namespace switchyard::planner
