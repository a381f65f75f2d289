#include "compiler/run_transfers.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "ir/autodiff.hpp"

namespace switchyard::compiler {
namespace {

using layout::ShardMap;

// The ranks of a stage that hold copies of the same boxes and cut these by rows among themselves.
std::vector<std::vector<int>> columns_of(const layout::Mesh& mesh, const std::vector<layout::StageAxis>& cuts) {
  const std::vector<int> along = layout::factors_of(mesh, cuts);
  std::vector<std::vector<int>> columns;
  for (int position = 0; position < mesh.size(); ++position) {
    std::vector<int> column;
    for (const int peer : mesh.peers(position, along)) column.push_back(mesh.ranks[static_cast<size_t>(peer)]);
    std::ranges::sort(column);
    if (std::ranges::find(columns, column) == columns.end()) columns.push_back(std::move(column));
  }
  return columns;
}

// The shards of some ranks; their partials, which may be others elsewhere, are numbered from 0.
ShardMap within(const ShardMap& map, const std::vector<int>& ranks) {
  ShardMap own{map.shape, 0, {}};
  std::map<int, int> number;
  for (layout::Shard shard : map.shards) {
    if (!std::ranges::binary_search(ranks, shard.rank)) continue;
    shard.partial = number.try_emplace(shard.partial, static_cast<int>(number.size())).first->second;
    own.shards.push_back(shard);
  }
  own.partials = static_cast<int>(number.size());
  return own;
}

// Columns that hold a value together, each element of each partial in one of them: copies, and partials that stay
// apart, are in different ones. Members of a column have equal boxes.
std::vector<std::vector<int>> holders_of(const ShardMap& map, const std::vector<std::vector<int>>& columns) {
  std::map<std::pair<std::vector<int>, std::vector<i64>>, int> copies;  // copies by partials and box
  std::map<std::pair<std::vector<int>, int>, std::vector<int>> together;
  for (const std::vector<int>& column : columns) {
    std::vector<int> partials;
    std::vector<i64> box;
    for (const layout::Shard& shard : map.shards) {
      if (!std::ranges::binary_search(column, shard.rank)) continue;
      partials.push_back(shard.partial);
      box.assign(shard.box.lo.begin(), shard.box.lo.end());
      box.insert(box.end(), shard.box.hi.begin(), shard.box.hi.end());
    }
    std::ranges::sort(partials);
    const int copy = copies[{partials, box}]++;
    std::vector<int>& ranks = together[{partials, copy}];
    ranks.insert(ranks.end(), column.begin(), column.end());
  }
  std::vector<std::vector<int>> holders;
  for (auto& [key, ranks] : together) {
    std::ranges::sort(ranks);
    holders.push_back(std::move(ranks));
  }
  return holders;
}

// Copies are one tensor where one of them lies on several hosts, and a host has ranks of several: what a host lacks
// then comes to it once, and its ranks share it.
std::vector<std::vector<int>> by_hosts(std::vector<std::vector<int>> copies, const cluster::Cluster& cluster) {
  bool crosses = false, share = false;
  std::set<int> seen;
  for (const std::vector<int>& copy : copies) {
    std::set<int> hosts;
    for (const int rank : copy) hosts.insert(cluster.host[static_cast<size_t>(rank)]);
    crosses = crosses || hosts.size() > 1;
    for (const int host : hosts) share = !seen.insert(host).second || share;
  }
  if (!crosses || !share) return copies;
  std::vector<int> all;
  for (const std::vector<int>& copy : copies) all.insert(all.end(), copy.begin(), copy.end());
  std::ranges::sort(all);
  return {all};
}

// The tensors of units that are moved or added up, from some maps to others.
struct Tensors {
  std::vector<switching::UnitMaps> units{};
  std::vector<std::vector<int>> names{};  // a unit's tensors: their parameters
  std::vector<ShardMap> from{}, to{};

  void add_unit(std::vector<RunTensor> tensors) {
    switching::UnitMaps& unit = units.emplace_back();
    std::vector<int>& params = names.emplace_back();
    for (RunTensor& tensor : tensors) {
      unit.tensors.push_back(static_cast<int>(from.size()));
      params.push_back(tensor.param);
      from.push_back(std::move(tensor.from));
      to.push_back(std::move(tensor.to));
    }
  }
  std::vector<switching::SharedRounds> named(const switching::MovePlan& plan) const {
    std::vector<switching::SharedRounds> moves;
    for (size_t u = 0; u < units.size(); ++u) {
      const auto params = std::make_shared<const std::vector<int>>(names[u]);
      switching::SharedRounds& unit = moves.emplace_back();
      for (const layout::MessageList& round : plan.units[u].moves.rounds)
        unit.rounds.emplace_back(round.pattern(), round.ranks(), params);
    }
    return moves;
  }
};

class Planning {
 public:
  Planning(const ir::Graph& graph, const cluster::Cluster& cluster, switching::Planner planner)
      : graph_(graph), cluster_(cluster), planner_(planner) {}

  void add(int unit, const config::Stage& stage, const ir::StageCode& code) {
    RunTensors of_unit = run_tensors(graph_, unit, stage, code, cluster_);
    gathered_.add_unit(std::move(of_unit.gathered));
    reduced_.add_unit(std::move(of_unit.reduced));
  }

  // Transfers of the units in the order in which they were added.
  std::vector<switching::SharedRounds> gathers() const {
    const auto& [units, names, from, to] = gathered_;
    const switching::MovePlan plan = switching::plan_switch(units, from, {}, to, cluster_, planner_);
    switching::verify_switch(plan, from, {}, to);
    return gathered_.named(plan);
  }
  std::vector<switching::SharedRounds> reductions() const {
    const auto& [units, names, from, to] = reduced_;
    const switching::MovePlan plan = switching::plan_reduce(units, from, to, cluster_, planner_);
    switching::verify_reduce(plan, from, to);
    return reduced_.named(plan);
  }

 private:
  const ir::Graph& graph_;
  const cluster::Cluster& cluster_;
  switching::Planner planner_;
  Tensors gathered_, reduced_;
};

}  // namespace

RunTensors run_tensors(const ir::Graph& graph, int unit, const config::Stage& in_step, const ir::StageCode& code,
                       const cluster::Cluster& cluster) {
  const layout::Mesh mesh = stage_mesh(in_step, code.replica);
  const std::vector<std::vector<int>> stored = columns_of(mesh, code.rows.stored),
                                      made = columns_of(mesh, code.rows.grad);
  const bool trained = ir::is_differentiated(graph);
  RunTensors tensors;
  for (const ir::ParamUse& use : code.params) {
    if (graph.param(use.param).unit != unit) continue;
    const Placed on = placed(graph.param(use.param).shape, in_step, code, use);
    if (code.gathers())
      for (const std::vector<int>& ranks : by_hosts(holders_of(on.used, stored), cluster))
        tensors.gathered.push_back({use.param, within(on.stored, ranks), within(on.used, ranks)});
    if (!trained) continue;
    for (const std::vector<int>& ranks : holders_of(on.made, made))
      tensors.reduced.push_back({use.param, within(on.made, ranks), within(on.grad, ranks)});
  }
  return tensors;
}

config::Stage part_in_step(const config::Stage& stage, const ir::GroupCode& group, int part) {
  config::Stage own = stage;
  own.mesh[layout::StageAxis::data] /= group.replicas / group.in_step;
  const auto first = stage.ranks.begin() + part * own.mesh.ranks();
  own.ranks.assign(first, first + own.mesh.ranks());
  return own;
}

TransfersOfStages run_transfers(const ir::Graph& graph, const config::Strategy& strategy,
                                const std::vector<ir::GroupCode>& groups, const cluster::Cluster& cluster,
                                switching::Planner planner) {
  Planning planning(graph, cluster, planner);
  TransfersOfStages transfers;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int parts = groups[g].replicas / groups[g].in_step;
    auto& of_group = transfers.emplace_back(parts);
    for (int part = 0; part < parts; ++part)
      for (size_t s = 0; s < groups[g].stages.size(); ++s) {
        const ir::StageCode& code = groups[g].stages[s];
        std::vector<RunTransfers>& of_stage = of_group[static_cast<size_t>(part)].emplace_back();
        if (!code.reduces()) continue;
        for (const int unit : code.units) {
          planning.add(unit, part_in_step(strategy.groups[g].stages[s], groups[g], part), code);
          of_stage.push_back({unit, {}, {}});
        }
      }
  }
  const std::vector<switching::SharedRounds> reductions = planning.reductions(), gathers = planning.gathers();
  size_t next = 0;
  for (auto& group : transfers)
    for (auto& part : group)
      for (auto& stage : part)
        for (RunTransfers& unit : stage) {
          unit.gather = gathers[next];
          unit.reduce = reductions[next++];
        }
  return transfers;
}

}  // namespace switchyard::compiler
