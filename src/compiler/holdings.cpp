#include "compiler/holdings.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "base/errors.hpp"
#include "ir/autodiff.hpp"

namespace switchyard::compiler {
namespace {

BoxesByRank::Table table_of(const std::vector<layout::ShardMap>& maps, const std::vector<int>& params, int ranks) {
  BoxesByRank::Table table(static_cast<size_t>(ranks));
  for (const int p : params)
    for (const layout::Shard& shard : maps[static_cast<size_t>(p)].shards)
      table[static_cast<size_t>(shard.rank)].push_back({p, &shard.box});
  return table;
}

std::vector<const layout::Box*> by_param(const std::vector<BoxesByRank::Entry>& entries, size_t params) {
  std::vector<const layout::Box*> boxes(params, nullptr);
  for (const BoxesByRank::Entry& entry : entries) boxes[static_cast<size_t>(entry.param)] = entry.box;
  return boxes;
}

std::vector<std::vector<int>> grouped(const ir::Graph& graph, const std::vector<int>& params) {
  std::vector<std::vector<int>> groups;
  std::map<std::string, size_t> place;
  for (const int p : params) {
    const std::string& name = graph.param(p).group;
    if (name.empty()) {
      groups.push_back({p});
      continue;
    }
    const auto [it, fresh] = place.try_emplace(name, groups.size());
    if (fresh) groups.emplace_back();
    groups[it->second].push_back(p);
  }
  return groups;
}

// Source of the working parameters of a group; the boxes are the rank's. All members of a group have one source,
// so that they stay adjacent.
template <class Used, class Previous, class Home>
WorkingGroup::Source source_of(const std::vector<int>& params, const Used& used, const Previous& previous,
                               const Home& home) {
  if (std::ranges::all_of(params, [&](int p) { return home(p).size() == 1 && *home(p)[0] == *used(p); }))
    return WorkingGroup::Source::home;
  if (std::ranges::all_of(params, [&](int p) { return previous(p) && *previous(p) == *used(p); }))
    return WorkingGroup::Source::previous;
  return WorkingGroup::Source::own;
}

}  // namespace

BoxesByRank boxes_by_rank(const Plans& plans) {
  BoxesByRank boxes;
  std::vector<int> all(plans.graph().params().size());
  std::iota(all.begin(), all.end(), 0);
  const auto table = [&](const std::vector<layout::ShardMap>& maps) {
    return table_of(maps, all, plans.cluster().ranks());
  };
  for (const CompiledStrategy& s : plans.strategies()) {
    boxes.used.push_back(table(s.maps.used));
    boxes.stored.push_back(table(s.maps.stored));
    boxes.made.push_back(table(s.maps.made));
    boxes.grad.push_back(table(s.maps.grad));
  }
  boxes.home = table(plans.home());
  boxes.owned = table(plans.owners());
  return boxes;
}

Holdings::Holdings(const Plans& plans, int rank) : Holdings(plans, boxes_by_rank(plans), rank) {}

Holdings::Holdings(const Plans& plans, const BoxesByRank& boxes, int rank)
    : plans_(plans),
      rank_(rank),
      has_optimizer_(ir::is_differentiated(plans.graph())),
      has_compute_copy_(!has_optimizer_ || plans.graph().precision().compute != plans.graph().precision().state),
      home_(plans.home().size()),
      owned_(home_.size()) {
  const auto r = static_cast<size_t>(rank);
  for (size_t s = 0; s < plans.strategies().size(); ++s) {
    used_.push_back(by_param(boxes.used[s][r], home_.size()));
    stored_.push_back(by_param(boxes.stored[s][r], home_.size()));
    made_.push_back(by_param(boxes.made[s][r], home_.size()));
    grad_.push_back(by_param(boxes.grad[s][r], home_.size()));
  }
  for (const BoxesByRank::Entry& entry : boxes.home[r]) home_[static_cast<size_t>(entry.param)].push_back(entry.box);
  for (const BoxesByRank::Entry& entry : boxes.owned[r]) owned_[static_cast<size_t>(entry.param)].push_back(entry.box);
  group_of_.resize(plans.graph().params().size());
  for (const switching::UnitMaps& unit : plans.units()) {
    groups_.push_back(grouped(plans.graph(), unit.tensors));
    for (size_t group = 0; group < groups_.back().size(); ++group)
      for (const int param : groups_.back()[group]) group_of_[static_cast<size_t>(param)] = group;
  }
}

std::vector<WorkingGroup> Holdings::working(int strategy, int previous, int unit) const {
  std::vector<WorkingGroup> working;
  for (const std::vector<int>& group : groups(unit)) {
    WorkingGroup held;
    for (const int p : group)
      if (const layout::Box* box = stored(strategy, p)) {
        held.params.push_back(p);
        held.elements += box->elements();
      }
    if (held.params.empty()) continue;
    held.source = source_of(
        held.params, [&](int p) { return stored(strategy, p); },
        [&](int p) { return previous < 0 ? nullptr : stored(previous, p); },
        [&](int p) -> const auto& { return home(p); });
    working.push_back(std::move(held));
  }
  return working;
}

i64 Holdings::home_elements(int unit) const {
  i64 total = 0;
  for (const std::vector<int>& group : groups(unit)) {
    for (const int p : group)
      for (const layout::Box* box : home(p)) total += box->elements();
    total = aligned(total);
  }
  return total;
}

i64 Holdings::working_elements(int strategy, int previous, int unit) const {
  i64 total = 0;
  for (const WorkingGroup& group : working(strategy, previous, unit))
    if (group.source == WorkingGroup::Source::own) total += group.elements;
  return total;
}

i64 Holdings::sum(const Boxes& boxes, int strategy, const std::vector<int>& group) {
  i64 total = 0;
  for (const int p : group)
    if (const layout::Box* box = at(boxes, strategy, p)) total += box->elements();
  return total;
}

const std::vector<int>& Holdings::group_of(int param) const {
  return groups(plans_.graph().param(param).unit)[group_of_[static_cast<size_t>(param)]];
}

std::map<int, i64> copied_elements(const Plans& plans, int strategy, int previous, int unit) {
  std::map<int, std::map<int, i64>> held;  // by rank and parameter
  for (const layout::MessageList& round : plans.moves(previous, strategy).units[static_cast<size_t>(unit)].moves.rounds)
    for (const layout::Msg& m : round)
      if (m.src == m.dst) held[m.dst][m.tensor] += m.box.elements();
  std::map<int, i64> copied;
  if (held.empty()) return copied;
  const std::vector<int>& params = plans.units()[static_cast<size_t>(unit)].tensors;
  const auto table = [&](const std::vector<layout::ShardMap>& maps) {
    return table_of(maps, params, plans.cluster().ranks());
  };
  const auto stored_under = [&](int of) { return table(plans.strategies()[static_cast<size_t>(of)].maps.stored); };
  const BoxesByRank::Table now = stored_under(strategy), home = table(plans.home());
  const BoxesByRank::Table before = previous < 0 ? BoxesByRank::Table(now.size()) : stored_under(previous);
  const std::vector<std::vector<int>> groups = grouped(plans.graph(), params);
  for (const auto& [rank, elements] : held) {
    const auto boxes = [r = static_cast<size_t>(rank)](const BoxesByRank::Table& of, int p) {
      std::vector<const layout::Box*> found;
      for (const BoxesByRank::Entry& entry : of[r])
        if (entry.param == p) found.push_back(entry.box);
      return found;
    };
    const auto box = [&](const BoxesByRank::Table& of, int p) -> const layout::Box* {
      const auto found = boxes(of, p);
      return found.empty() ? nullptr : found[0];
    };
    for (const std::vector<int>& group : groups) {
      std::vector<int> stored;
      std::ranges::copy_if(group, std::back_inserter(stored), [&](int p) { return box(now, p) != nullptr; });
      const WorkingGroup::Source source = source_of(
          stored, [&](int p) { return box(now, p); }, [&](int p) { return box(before, p); },
          [&](int p) { return boxes(home, p); });
      if (source != WorkingGroup::Source::own) continue;
      for (const int p : stored)
        if (const auto it = elements.find(p); it != elements.end()) copied[rank] += it->second;
    }
  }
  return copied;
}

std::vector<StateKey> states_of(const ir::Task& task, int rank) {
  const auto at = [&](int stage) {
    return StateKey{.phase = task.phase, .replica = task.replica(), .micro_batch = task.micro_batch(), .stage = stage};
  };
  if (task.kind() == ir::TaskKind::run) return {at(task.stage())};
  std::vector<StateKey> states;
  if (task.kind() != ir::TaskKind::send) return states;
  if (task.messages.sends(rank)) states.push_back(at(task.stage()));
  if (task.messages.receives(rank)) states.push_back(at(task.forward() ? task.stage() + 1 : task.stage() - 1));
  return states;
}

UnitUse use_of_transfer(const ir::Task& task) {
  return {.phase = task.phase,
          .unit = task.unit(),
          .gradient = task.kind() == ir::TaskKind::reduce_scatter,
          .stage = task.stage(),
          .micro_batch = task.micro_batch(),
          .pass = task.pass()};
}

namespace {

const ir::StageCode& code_of(const ir::Task& task, const batch::StepPlan& plan, const Plans& plans) {
  const CompiledStrategy& strategy =
      plans.strategies()[static_cast<size_t>(plan.phases[static_cast<size_t>(task.phase)].strategy)];
  return strategy.groups[static_cast<size_t>(task.group())].stages[static_cast<size_t>(task.stage())];
}

}  // namespace

UnitUse use_of_run(const ir::Task& task, const ir::StageCode& code, int unit, bool gradient) {
  return {.phase = task.phase,
          .unit = unit,
          .gradient = gradient,
          .stage = task.stage(),
          .micro_batch = code.first_of_block(task.micro_batch()),
          .pass = gradient ? task.pass() : code.copy_pass(task.pass(), unit)};
}

std::vector<UnitUse> unit_uses(const ir::Task& task, int rank, const batch::StepPlan& plan, const Plans& plans) {
  using ir::TaskKind;
  std::vector<UnitUse> uses;
  const auto parameters = [&](int unit) { uses.push_back({task.phase, unit, false}); };
  const auto gradients = [&](int unit) { uses.push_back({task.phase, unit, true}); };
  switch (task.kind()) {
    case TaskKind::run:
    case TaskKind::zero_fill: {
      const ir::StageCode& code = code_of(task, plan, plans);
      const ir::Segment& segment = code.segment(task.pass());
      const auto of_run = [&](int unit, bool gradient) { uses.push_back(use_of_run(task, code, unit, gradient)); };
      const bool runs = task.kind() == TaskKind::run, makes_gradients = !runs || !task.forward();
      if (runs && code.gathers())
        for (const int unit : ir::units_read(segment, task.piece())) of_run(unit, false);
      if (makes_gradients && code.reduces() && task.micro_batch() >= 0)
        for (const int unit : ir::units_written(segment, task.piece())) {
          of_run(unit, true);
          gradients(unit);
        }
      for (const int unit : code.units) {
        if (runs && !code.gathers()) parameters(unit);
        if (makes_gradients && (!code.reduces() || task.micro_batch() < 0)) gradients(unit);
      }
      break;
    }
    case TaskKind::gather:
      parameters(task.unit());
      uses.push_back(use_of_transfer(task));
      break;
    case TaskKind::reduce_scatter:
      gradients(task.unit());
      uses.push_back(use_of_transfer(task));
      break;
    case TaskKind::reduce:
      gradients(task.unit());
      break;
    case TaskKind::allocate:
    case TaskKind::move:
      parameters(task.unit());
      if (task.phase > 0 && (task.kind() == TaskKind::allocate || task.messages.sends(rank)))
        uses.push_back({task.phase - 1, task.unit(), false});
      break;
    case TaskKind::send:
    case TaskKind::broadcast:
    case TaskKind::norm:
    case TaskKind::update:
      break;
  }
  return uses;
}

std::vector<UnitUse> uses_until_start(const ir::Task& task, int rank, const ir::Program& program) {
  std::vector<UnitUse> uses;
  if (task.queue != ir::Queue::compute) return uses;
  for (const ir::Wait& wait : task.after) {
    const ir::Task& awaited = program.tasks[static_cast<size_t>(wait.task)];
    if (std::ranges::find(awaited.ranks, rank) == awaited.ranks.end()) continue;
    if (awaited.kind() == ir::TaskKind::reduce_scatter) uses.push_back(use_of_transfer(awaited));
    if (awaited.kind() == ir::TaskKind::gather) uses.push_back({awaited.phase, awaited.unit(), false});
  }
  return uses;
}

std::multimap<int, int> rooms_of(const ir::Program& program, int rank, const batch::StepPlan& plan,
                                 const Plans& plans) {
  const std::vector<int>& tasks = program.of_rank[static_cast<size_t>(rank)];
  std::set<UnitUse> read;
  for (const int id : tasks)
    if (const ir::Task& task = program.tasks[static_cast<size_t>(id)]; task.kind() == ir::TaskKind::run)
      for (const UnitUse& use : unit_uses(task, rank, plan, plans))
        if (use.of_run() && !use.gradient) read.insert(use);
  std::multimap<int, int> rooms;
  int last = kStart;  // compute task that the gathers so far wait for
  for (const int id : tasks) {
    const ir::Task& task = program.tasks[static_cast<size_t>(id)];
    if (task.kind() != ir::TaskKind::gather) continue;
    for (const ir::Wait& wait : task.after) {
      const ir::Task& awaited = program.tasks[static_cast<size_t>(wait.task)];
      if (awaited.queue == ir::Queue::compute && std::ranges::find(awaited.ranks, rank) != awaited.ranks.end())
        last = std::max(last, wait.task);
    }
    if (read.erase(use_of_transfer(task)) > 0) rooms.emplace(last, id);
  }
  return rooms;
}

std::vector<int> params_of(const ir::Task& gather, const batch::StepPlan& plan, const Plans& plans) {
  std::vector<int> params;
  for (const ir::ParamUse& use : code_of(gather, plan, plans).params)
    if (plans.graph().param(use.param).unit == gather.unit()) params.push_back(use.param);
  return params;
}

}  // namespace switchyard::compiler
