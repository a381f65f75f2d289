#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/errors.hpp"
#include "base/text.hpp"
#include "compiler/assemble.hpp"
#include "compiler/compile.hpp"
#include "compiler/local_stage.hpp"
#include "compiler/overlap.hpp"
#include "compiler/replica_schedule.hpp"
#include "ir/autodiff.hpp"

namespace switchyard::compiler {
namespace {

SegmentCost instr_cost(const ir::StageCode& stage, const ir::Instr& instr, int position) {
  const ir::LocalWork work = ir::local_work(stage, instr, position);
  const ir::Cost& cost = work.cost;
  const double accumulated = 0.5 * cost.bytes_accumulated;  // one pass of the two lies under the product
  SegmentCost one{
      .flops_per_token = cost.flops_per_token,
      // A square has about two pairs to each that is seen.
      .flops_per_pair = cost.flops_per_pair + 2 * cost.flops_per_square,
      .bytes_per_token = cost.bytes_per_token + cost.bytes_after_per_token,
      .bytes_per_pair = 2 * cost.bytes_per_square,
      .bytes_fixed = cost.bytes_fixed,
  };
  if (work.chunk > 0)
    one.bytes_per_token += accumulated * work.share / work.chunk;
  else
    one.bytes_fixed += accumulated;
  return one;
}

// The narrowest type of an activation: statistics are wider.
DType compute_type(const ir::StageCode& stage) {
  DType narrowest = DType::f64;
  for (const ir::Buffer& buffer : stage.buffers)
    if (buffer.kind == ir::ValueKind::activation && size_of(buffer.type.dtype) < size_of(narrowest))
      narrowest = buffer.type.dtype;
  return narrowest;
}

// Bytes per token that a rank gets in a reshard: what its part grows or shrinks by, or, of parts that stay as large,
// these themselves, twice if they are sums of all ranks.
double bytes_moved_per_token(const ir::StageCode& stage, const ir::Instr& reshard, int position) {
  const int positions = stage.replica.size();
  const i64 tokens = positions * i64{1024};
  const auto bytes = [&](const std::vector<int>& buffers) {
    double all = 0;
    for (const int b : buffers)
      all += static_cast<double>(
          ir::local_bytes(stage.buffers[static_cast<size_t>(b)], position, positions, {tokens, tokens}));
    return all / static_cast<double>(tokens);
  };
  const double before = bytes(reshard.in), after = bytes(reshard.out);
  if (before != after) return std::abs(before - after);
  return stage.buffers[static_cast<size_t>(reshard.in[0])].layout.partial.empty() ? before : 2 * before;
}

// Bytes of links that pass while nothing is computed, in the order as with overlap, so that schedules don't depend on
// run.overlap. Instructions of one queue run one after the other.
double waited_bytes_per_token(const ir::StageCode& stage, const ir::Segment& plain, int position) {
  const ir::Segment ordered = stage.overlap ? ir::Segment() : overlapped(stage, plain);
  const ir::Segment& segment = stage.overlap ? plain : ordered;
  const NominalDevice device = nominal_device(compute_type(stage));
  std::vector<double> ends(segment.code.size(), 0);
  double now = 0, computed = 0, link = 0;
  ir::walk(
      segment,
      [&](size_t i) {
        const ir::Instr& instr = segment.code[i];
        if (instr.op) {
          SegmentCost cost = instr_cost(stage, instr, position);
          cost.bytes_fixed = 0;
          const double work = device.seconds(cost, 1, 0).count * device.inside;
          now += work;
          computed += work;
        } else {
          ends[i] = link = std::max(link, now) + bytes_moved_per_token(stage, instr, position);
        }
      },
      [&](size_t i) { now = std::max(now, ends[i]); });
  return now - computed;
}

SegmentCost segment_cost(const ir::StageCode& stage, const ir::Segment& segment, int position) {
  SegmentCost total;
  for (const ir::Instr& instr : segment.code)
    if (instr.op) total += instr_cost(stage, instr, position);
  const bool split = !stage.weight.code.empty();  // other schedules are made without times
  if (split && !stage.paired) total.bytes_waited_per_token = waited_bytes_per_token(stage, segment, position);
  return total;
}

SegmentCost slowest(const ir::StageCode& stage, const ir::Segment& segment) {
  SegmentCost worst;
  for (int position = 0; position < stage.replica.size(); ++position) {
    if (position > 0 && same_sizes(stage, position - 1, position)) continue;
    const SegmentCost cost = segment_cost(stage, segment, position);
    if (cost.flops_per_token >= worst.flops_per_token) worst = cost;
  }
  return worst;
}

CompiledStrategy compile_strategy(const ir::Graph& graph, config::Strategy strategy, const cluster::Cluster& cluster,
                                  const CodeOptions& how) {
  for (size_t i = 0; i < strategy.splits.size(); ++i)
    if (const std::string& name = strategy.splits[i].parameter; std::ranges::none_of(
            graph.params(), [&](const ir::Param& param) { return matches_wildcard(name, param.name); }))
      user_error(
          "strategy \"{}\": splits[{}].parameter = \"{}\" is no parameter of the model. `switchyard show model` lists "
          "them.",
          strategy.name, i, name);
  CompiledStrategy compiled;
  compiled.groups = compile(graph, strategy, cluster, how);
  compiled.maps = param_maps(graph, strategy, compiled.groups);
  for (size_t g = 0; g < compiled.groups.size(); ++g) {
    for (int replica = 0; replica < compiled.groups[g].replicas; ++replica)
      compiled.replicas.push_back({static_cast<int>(g), replica});
    auto& costs = compiled.cost.emplace_back();
    for (const ir::StageCode& stage : compiled.groups[g].stages) {
      compiled.multiple = std::lcm(compiled.multiple, static_cast<i64>(stage.replica.size()));
      costs.push_back(cost_of(stage));
    }
  }
  compiled.strategy = std::move(strategy);
  return compiled;
}

}  // namespace

SegmentCost& SegmentCost::operator+=(const SegmentCost& other) {
  flops_per_token += other.flops_per_token;
  flops_per_pair += other.flops_per_pair;
  bytes_per_token += other.bytes_per_token;
  bytes_per_pair += other.bytes_per_pair;
  bytes_fixed += other.bytes_fixed;
  bytes_waited_per_token += other.bytes_waited_per_token;
  return *this;
}

SegmentCost operator*(int times, const SegmentCost& one) {
  return {.flops_per_token = times * one.flops_per_token,
          .flops_per_pair = times * one.flops_per_pair,
          .bytes_per_token = times * one.bytes_per_token,
          .bytes_per_pair = times * one.bytes_per_pair,
          .bytes_fixed = times * one.bytes_fixed,
          .bytes_waited_per_token = times * one.bytes_waited_per_token};
}

StageCost& StageCost::operator+=(const StageCost& other) {
  forward += other.forward;
  backward += other.backward;
  weight += other.weight;
  joined += other.joined;
  compute = other.compute;
  return *this;
}

StageCost operator*(int times, const StageCost& one) {
  return {.forward = times * one.forward,
          .backward = times * one.backward,
          .weight = times * one.weight,
          .joined = times * one.joined,
          .compute = one.compute};
}

StageCost cost_of(const ir::StageCode& stage) {
  return {.forward = slowest(stage, stage.forward),
          .backward = slowest(stage, stage.backward),
          .weight = slowest(stage, stage.weight),
          .joined = slowest(stage, stage.joined),
          .compute = compute_type(stage)};
}

std::span<const int> CompiledStrategy::ranks_of(int replica, int stage) const {
  const Replica& at = replicas[static_cast<size_t>(replica)];
  const config::Stage& placed = strategy.groups[static_cast<size_t>(at.group)].stages[static_cast<size_t>(stage)];
  const size_t wide = placed.ranks.size() / static_cast<size_t>(placed.mesh.replicas());
  return std::span(placed.ranks).subspan(static_cast<size_t>(at.index) * wide, wide);
}

int CompiledStrategy::ring_ranks(int replica) const {
  const auto group = static_cast<size_t>(replicas[static_cast<size_t>(replica)].group);
  return strategy.groups[group].stages.front().mesh[layout::StageAxis::ring];
}

std::vector<int> CompiledStrategy::replica_ranks(int replica, int stage) const {
  const std::span<const int> ranks = ranks_of(replica, stage);
  return {ranks.begin(), ranks.end()};
}

std::vector<int> CompiledStrategy::code_ranks(int replica, int stage, int ring) const {
  const std::span<const int> all = ranks_of(replica, stage);
  const size_t positions = all.size() / static_cast<size_t>(ring_ranks(replica));
  const std::span<const int> ranks = all.subspan(static_cast<size_t>(ring) * positions, positions);
  return {ranks.begin(), ranks.end()};
}

std::vector<int> CompiledStrategy::ring_peers(int replica, int stage, int position) const {
  std::vector<int> peers;
  for (int ring = 0; ring < ring_ranks(replica); ++ring)
    peers.push_back(code_ranks(replica, stage, ring)[static_cast<size_t>(position)]);
  return peers;
}

RunPlace CompiledStrategy::place_of(int replica, int stage, int rank) const {
  const std::span<const int> all = ranks_of(replica, stage);
  const auto at = std::ranges::find(all, rank);
  if (at == all.end()) return {};
  const int index = static_cast<int>(at - all.begin());
  const int positions = static_cast<int>(all.size()) / ring_ranks(replica);
  return {index / positions, index % positions};
}

CompiledModel::CompiledModel(ir::Graph graph, cluster::Cluster cluster, const CodeOptions& how)
    : graph_(std::move(graph)), cluster_(std::move(cluster)), how_(how) {
  if (!how_.exchanges) how_.exchanges = std::make_shared<KnownExchanges>();
}

std::shared_ptr<const CompiledStrategy> CompiledModel::compiled(const config::Strategy& strategy) const {
  const auto known = [&] {
    const std::lock_guard lock(mutex_);
    const auto at = std::ranges::find(known_, strategy, [](const auto& one) { return one->strategy; });
    return at == known_.end() ? nullptr : *at;
  };
  if (auto one = known()) return one;
  auto made = std::make_shared<const CompiledStrategy>(compile_strategy(graph_, strategy, cluster_, how_));
  const std::lock_guard lock(mutex_);
  return known_.emplace_back(std::move(made));
}

Plans::Plans(ir::Graph graph, const std::vector<config::Strategy>& strategies, int home_anchor,
             cluster::Cluster cluster, switching::Planner planner, const CodeOptions& how)
    : Plans(std::make_shared<const CompiledModel>(std::move(graph), std::move(cluster), how), strategies, home_anchor,
            planner) {}

Plans::Plans(std::shared_ptr<const CompiledModel> model, const std::vector<config::Strategy>& strategies,
             int home_anchor, switching::Planner planner, i64 longest_document)
    : model_(std::move(model)), planner_(planner), anchor_(home_anchor), longest_document_(longest_document) {
  for (const config::Strategy& strategy : strategies) strategies_.push_back(model_->compiled(strategy));
  check(home_anchor >= 0 && static_cast<size_t>(home_anchor) < strategies_.size(), "no strategy {} to anchor home",
        home_anchor);
  owners_ = owner_maps(anchor().maps);
  home_ = home_maps(anchor().maps, anchor().strategy.zero);
  units_ = unit_maps(graph());
  const bool trained = ir::is_differentiated(graph());
  reductions_.resize(strategies_.size());
  for (size_t s = 0; s < strategies_.size(); ++s) {
    const CompiledStrategy& strategy = this->strategies()[s];
    of_runs_.push_back(run_transfers(graph(), strategy.strategy, strategy.groups, cluster(), planner_));
    if (!trained) continue;
    reductions_[s] = switching::plan_reduce(units_, strategy.maps.grad, owners_, cluster(), planner_);
    switching::verify_reduce(reductions_[s], strategy.maps.grad, owners_);
  }
  residuals_ = residuals_of(*this);
  if (home_ == owners_ || !trained) return;
  broadcast_ = switching::plan_switch(units_, owners_, {}, home_, cluster(), planner_);
  switching::verify_switch(broadcast_, owners_, {}, home_);
}

const switching::MovePlan& Plans::moves(int from, int to) const {
  const std::lock_guard lock(*mutex_);
  const auto known = moves_.find({from, to});
  if (known != moves_.end()) return known->second;
  static const std::vector<layout::ShardMap> kNone;
  const std::vector<layout::ShardMap>& previous =
      from < 0 ? kNone : strategies_[static_cast<size_t>(from)]->maps.stored;
  const std::vector<layout::ShardMap>& target = strategies_[static_cast<size_t>(to)]->maps.stored;
  switching::MovePlan plan = switching::plan_switch(units_, previous, home_, target, cluster(), planner_);
  switching::verify_switch(plan, previous, home_, target);
  return moves_.emplace(std::pair{from, to}, std::move(plan)).first->second;
}

}  // namespace switchyard::compiler
