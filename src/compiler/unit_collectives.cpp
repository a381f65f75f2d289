#include "compiler/unit_collectives.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "compiler/round_parts.hpp"

namespace switchyard::compiler {
namespace {

using ir::TaskKind;
using layout::GroupCollective;
using layout::ShardMap;

const CompiledStrategy& strategy_of(const UnitTransfer& transfer, const Plans& plans) {
  return plans.strategies()[static_cast<size_t>(transfer.strategy)];
}

const RunTransfers& of_runs(const UnitTransfer& t, const Plans& plans) {
  const auto& units = plans.of_runs(
      t.strategy)[static_cast<size_t>(t.group)][static_cast<size_t>(t.part)][static_cast<size_t>(t.stage)];
  const auto found = std::ranges::find(units, t.unit, &RunTransfers::unit);
  check(found != units.end(), "stage {} moves nothing of unit {} for runs", t.stage, t.unit);
  return *found;
}

const switching::SharedRounds& of_unit(const switching::MovePlan& plan, int unit) {
  const auto found = std::ranges::find(plan.units, unit, &switching::UnitMoves::unit);
  check(found != plan.units.end(), "no moves of unit {}", unit);
  return found->moves;
}

const switching::SharedRounds& rounds_of(const UnitTransfer& t, const Plans& plans) {
  switch (t.kind) {
    case TaskKind::move:
      return of_unit(plans.moves(t.before, t.strategy), t.unit);
    case TaskKind::gather:
      return of_runs(t, plans).gather;
    case TaskKind::reduce_scatter:
      return of_runs(t, plans).reduce;
    case TaskKind::reduce:
      return of_unit(plans.reduction(t.strategy), t.unit);
    default:
      check(t.kind == TaskKind::broadcast, "a transfer of no unit");
      return of_unit(plans.broadcast(), t.unit);
  }
}

// The tensors of a transfer, with the maps from which and to which it brings them.
std::vector<RunTensor> tensors_of(const UnitTransfer& t, const Plans& plans) {
  if (t.kind == TaskKind::gather || t.kind == TaskKind::reduce_scatter) {
    const CompiledStrategy& s = strategy_of(t, plans);
    const auto g = static_cast<size_t>(t.group), stage = static_cast<size_t>(t.stage);
    RunTensors tensors =
        run_tensors(plans.graph(), t.unit, part_in_step(s.strategy.groups[g].stages[stage], s.groups[g], t.part),
                    s.groups[g].stages[stage], plans.cluster());
    return t.kind == TaskKind::gather ? std::move(tensors.gathered) : std::move(tensors.reduced);
  }
  std::vector<RunTensor> tensors;
  for (const int param : plans.units()[static_cast<size_t>(t.unit)].tensors) {
    const auto p = static_cast<size_t>(param);
    if (t.kind == TaskKind::broadcast) {
      tensors.push_back({param, plans.owners()[p], plans.home()[p]});
      continue;
    }
    const ParamMaps& maps = strategy_of(t, plans).maps;
    if (t.kind == TaskKind::reduce)
      tensors.push_back({param, maps.grad[p], plans.owners()[p]});
    else  // the previous strategy's copies are preferred to home's
      tensors.push_back(
          {param, t.before < 0 ? plans.home()[p] : plans.strategies()[static_cast<size_t>(t.before)].maps.stored[p],
           maps.stored[p]});
  }
  return tensors;
}

// The names of ranks and messages that tell transfers apart.
using Kind = std::tuple<TaskKind, const void*, std::vector<int>>;

}  // namespace

UnitTransfer unit_transfer_of(const ir::Task& task, const batch::StepPlan& plan, const Plans& plans) {
  const auto of_phase = [&](int phase) { return phase < 0 ? -1 : plan.phases[static_cast<size_t>(phase)].strategy; };
  UnitTransfer transfer{.kind = task.kind(), .unit = task.unit(), .strategy = of_phase(task.phase)};
  if (task.kind() == TaskKind::move) transfer.before = of_phase(task.phase - 1);
  if (task.kind() != TaskKind::gather && task.kind() != TaskKind::reduce_scatter) return transfer;
  transfer.group = task.group();
  transfer.stage = task.stage();
  const CompiledStrategy& s = strategy_of(transfer, plans);
  const ir::GroupCode& group = s.groups[static_cast<size_t>(transfer.group)];
  const std::vector<int>& ranks =
      s.strategy.groups[static_cast<size_t>(transfer.group)].stages[static_cast<size_t>(transfer.stage)].ranks;
  const auto place = std::ranges::find(ranks, task.ranks.front()) - ranks.begin();
  transfer.part = static_cast<int>(place * (group.replicas / group.in_step) / std::ssize(ranks));
  return transfer;
}

std::vector<UnitTransfer> unit_transfers(const Plans& plans) {
  std::vector<UnitTransfer> transfers;
  std::set<Kind> known;
  const auto add = [&](const UnitTransfer& transfer) {
    const auto& rounds = rounds_of(transfer, plans).rounds;
    if (rounds.empty()) return;
    const layout::Names& names = rounds[0].ranks();
    if (known.emplace(transfer.kind, rounds[0].pattern().get(), names ? *names : std::vector<int>()).second)
      transfers.push_back(transfer);
  };
  const int strategies = static_cast<int>(plans.strategies().size()), units = static_cast<int>(plans.units().size());
  for (int s = 0; s < strategies; ++s) {
    const TransfersOfStages& groups = plans.of_runs(s);
    for (size_t g = 0; g < groups.size(); ++g)
      for (size_t part = 0; part < groups[g].size(); ++part)
        for (size_t stage = 0; stage < groups[g][part].size(); ++stage)
          for (const RunTransfers& unit : groups[g][part][stage])
            for (const TaskKind kind : {TaskKind::gather, TaskKind::reduce_scatter})
              add({.kind = kind,
                   .unit = unit.unit,
                   .strategy = s,
                   .group = static_cast<int>(g),
                   .part = static_cast<int>(part),
                   .stage = static_cast<int>(stage)});
  }
  for (int s = 0; s < strategies; ++s)
    for (const switching::UnitMoves& unit : plans.reduction(s).units)
      add({.kind = TaskKind::reduce, .unit = unit.unit, .strategy = s});
  for (const switching::UnitMoves& unit : plans.broadcast().units)
    add({.kind = TaskKind::broadcast, .unit = unit.unit});
  for (int before = -1; before < strategies; ++before)
    for (int s = 0; s < strategies; ++s)
      for (int unit = 0; unit < units && before != s; ++unit)
        add({.kind = TaskKind::move, .unit = unit, .before = before, .strategy = s});
  return transfers;
}

UnitCollectives collectives_of(const UnitTransfer& transfer, const Plans& plans) {
  const auto& rounds = rounds_of(transfer, plans).rounds;
  UnitCollectives made;
  if (rounds.empty()) return made;
  const bool sums = transfer.kind == TaskKind::reduce || transfer.kind == TaskKind::reduce_scatter;
  made.round = sums ? static_cast<int>(rounds.size()) - 1 : 0;
  const layout::MessageList& round = rounds[static_cast<size_t>(made.round)];
  const RoundParts parts(round.pattern()->messages());
  const auto share_a_task = [&](const std::vector<int>& ranks) {
    const int part = parts.of(round.number_of(ranks[0]));
    return part != RoundParts::kNone &&
           std::ranges::all_of(ranks, [&](int rank) { return parts.of(round.number_of(rank)) == part; });
  };
  std::map<std::pair<int, int>, i64> received;  // elements of a parameter, by a rank
  for (const layout::MessageList& messages : rounds)
    for (const layout::Msg& m : messages)
      if (m.src != m.dst) received[{m.tensor, m.dst}] += m.box.elements();
  // A rank that has more than its piece already, at home, say, gets less by messages.
  const auto gets_all = [&](int param, int rank, const GroupCollective& group) {
    const auto found = received.find({param, rank});
    return found != received.end() &&
           (sums || found->second == (std::ssize(group.ranks) - 1) * group.pieces[0].elements());
  };
  std::set<int> others;  // parameters of which some rank gets something in another way
  for (const RunTensor& tensor : tensors_of(transfer, plans)) {
    std::vector<GroupCollective> groups = layout::group_collectives(tensor.from, tensor.to);
    const bool fits = !groups.empty() && std::ranges::all_of(groups, [&](const GroupCollective& group) {
      return switchyard::sums(group.call) == sums && share_a_task(group.ranks) &&
             std::ranges::all_of(group.ranks, [&](int rank) { return gets_all(tensor.param, rank, group); });
    });
    if (!fits) others.insert(tensor.param);
    std::ranges::move(groups, std::back_inserter(made.of_param[tensor.param]));
  }
  for (const int param : others) made.of_param.erase(param);
  return made;
}

}  // namespace switchyard::compiler
