#include "compiler/compile.hpp"

#include <algorithm>
#include <set>

#include "base/errors.hpp"
#include "compiler/overlap.hpp"
#include "compiler/pieces.hpp"
#include "compiler/recompute.hpp"
#include "compiler/stage_builder.hpp"

namespace switchyard::compiler {
namespace {

// Replicas that differ only in their places on axes by which rows are cut, and on those inside these axes.
int replicas_in_step(const layout::StageMesh& mesh, const layout::RowCuts& rows) {
  int replicas = 1;
  for (const layout::StageAxis axis : layout::replica_axes())
    if (replicas > 1 || std::ranges::find(rows.grad, axis) != rows.grad.end()) replicas *= mesh[axis];
  return replicas;
}

// Whether both kinds of gradients at once take less time than apart: the sums of inputs' gradients run under products
// for weights. Micro-batches in pairs hide them anyway, and blocks that gather or reduce have runs of one pass. Without
// overlap nothing is gained, but schedules, and so the order of sums, don't depend on it.
bool gains_by_joining(const ir::StageCode& stage, const config::Strategy& strategy) {
  if (strategy.paired || stage.gathers() || stage.reduces()) return false;
  return std::ranges::any_of(stage.joined.code,
                             [](const ir::Instr& instr) { return instr.queue == ir::Queue::collective; });
}

}  // namespace

std::vector<std::vector<int>> host_patterns(std::span<const int> ranks, i64 positions,
                                            const cluster::Cluster& cluster) {
  std::vector<std::vector<int>> patterns;
  if (cluster.host.empty()) return patterns;
  const size_t wide = static_cast<size_t>(positions);
  for (size_t first = 0; first < ranks.size(); first += wide) {
    std::vector<int> pattern = layout::host_pattern(ranks.subspan(first, wide), cluster);
    if (std::ranges::find(patterns, pattern) == patterns.end()) patterns.push_back(std::move(pattern));
  }
  return patterns;
}

KnownExchanges::List KnownExchanges::named(const std::string& name, const std::function<List()>& plan) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find(name); known != known_.end()) return known->second;
  }
  List list = plan();
  const std::lock_guard lock(mutex_);
  return known_.try_emplace(name, std::move(list)).first->second;
}

ir::StageCode compile_stage(const ir::Graph& graph, const config::Strategy& strategy, const layout::StageMesh& mesh,
                            int first_unit, int end_unit, const std::vector<std::vector<int>>& hosts,
                            const CodeOptions& how) {
  const std::shared_ptr<KnownExchanges> exchanges = how.exchanges ? how.exchanges : std::make_shared<KnownExchanges>();
  std::set<int> gathered;
  ir::StageCode stage;
  for (bool built = false; !built;) {
    StageBuilder builder(graph, strategy, mesh, first_unit, end_unit, hosts, gathered, exchanges);
    stage = builder.build();
    built = builder.misfits().empty();
    gathered.insert(builder.misfits().begin(), builder.misfits().end());
  }
  stage.passing = strategy.exchange;
  stage.overlap = how.overlap;
  stage.overlap_transfers = how.overlap_transfers;
  stage.on_devices = how.on_devices;
  stage.element_kernels = how.element_kernels;
  stage.rows = layout::row_cuts(mesh, strategy.zero);
  stage.every = strategy.every;
  stage.paired = strategy.paired && how.overlap;
  recompute(stage, strategy.recompute);
  if (strategy.splits_gradients()) split_gradients(stage);
  if (!gains_by_joining(stage, strategy)) stage.joined.code.clear();
  order_collectives(stage, how.overlap);
  for (ir::Segment* segment : stage.segments()) annotate_units(graph, stage, *segment);
  if (stage.reduces() || stage.paired) cut_into_pieces(stage);
  annotate_lifetimes(stage);
  std::set<int> units;
  for (const ir::ParamUse& use : stage.params) units.insert(graph.param(use.param).unit);
  stage.units.assign(units.begin(), units.end());
  return stage;
}

std::vector<ir::GroupCode> compile(const ir::Graph& graph, const config::Strategy& strategy,
                                   const cluster::Cluster& cluster, const CodeOptions& how) {
  std::vector<ir::GroupCode> groups;
  for (const config::Group& group : strategy.groups) {
    ir::GroupCode code{group.replicas(), 1, {}};
    for (size_t s = 0; s < group.stages.size(); ++s) {
      const config::Stage& stage = group.stages[s];
      // Unit 0 is the embedding, units 1 .. layers the layers, the last one final norm and head.
      const int first = s == 0 ? 0 : stage.first_layer + 1;
      const int end = s + 1 == group.stages.size() ? graph.units() : stage.end_layer + 1;
      ir::StageCode& made = code.stages.emplace_back(compile_stage(
          graph, strategy, stage.mesh, first, end, host_patterns(stage.ranks, stage.mesh.positions(), cluster), how));
      const size_t chunk = s * static_cast<size_t>(strategy.chunk_count()) / group.stages.size();
      const bool last_chunk = static_cast<int>(chunk) + 1 == strategy.chunk_count();
      const auto usual = [&](config::ScheduleKind kind) {
        return strategy.order.order.empty() && strategy.schedule == kind;
      };
      made.one_copy = usual(config::ScheduleKind::zeropp) && last_chunk;
      // The last stage turns round at once.
      if (usual(config::ScheduleKind::one_f_one_b) && made.every == 1 && !made.paired && end == graph.units())
        made.kept_unit = end - 1;
      code.in_step = std::max(code.in_step, replicas_in_step(stage.mesh, made.rows));
    }
    groups.push_back(std::move(code));
  }
  return groups;
}

}  // namespace switchyard::compiler
