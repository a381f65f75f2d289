#include "compiler/assemble.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "base/errors.hpp"
#include "compiler/order.hpp"
#include "compiler/replica_schedule.hpp"
#include "compiler/step_assembler.hpp"
#include "schedule/item_index.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

std::vector<int> union_of(std::set<int> set) { return {set.begin(), set.end()}; }

// A transaction of a round; ranks as the round's pattern numbers them.
struct RoundPart {
  layout::MessageList::Pattern messages;
  std::vector<int> ranks;
  i64 elements = 0;  // over links
};

RoundPart part_of(std::vector<layout::Msg> messages) {
  RoundPart part;
  for (const layout::Msg& m : messages) {
    part.ranks.insert(part.ranks.end(), {m.src, m.dst});
    if (m.src != m.dst) part.elements += m.box.elements();
  }
  std::sort(part.ranks.begin(), part.ranks.end());
  part.ranks.erase(std::unique(part.ranks.begin(), part.ranks.end()), part.ranks.end());
  part.messages = std::make_shared<const std::vector<layout::Msg>>(std::move(messages));
  return part;
}

// Messages of a round, parted into transactions that share no rank. Local messages go with their rank's transaction;
// those of ranks without one share a last part.
std::vector<RoundPart> parts_of(const std::vector<layout::Msg>& round) {
  int ranks = 0;
  for (const layout::Msg& m : round) ranks = std::max({ranks, m.src + 1, m.dst + 1});
  std::vector<int> leader(static_cast<size_t>(ranks), -1);  // -1: in no transaction
  const auto find = [&](int rank) {
    while (leader[static_cast<size_t>(rank)] != rank)
      rank = leader[static_cast<size_t>(rank)] = leader[static_cast<size_t>(leader[static_cast<size_t>(rank)])];
    return rank;
  };
  for (const layout::Msg& m : round)
    if (m.src != m.dst) {
      for (const int rank : {m.src, m.dst})
        if (leader[static_cast<size_t>(rank)] < 0) leader[static_cast<size_t>(rank)] = rank;
      const int x = find(m.src), y = find(m.dst);
      leader[static_cast<size_t>(std::max(x, y))] = std::min(x, y);
    }
  std::vector<std::vector<layout::Msg>> by_leader(static_cast<size_t>(ranks) + 1);  // the last one: local
  for (const layout::Msg& m : round)
    by_leader[static_cast<size_t>(leader[static_cast<size_t>(m.src)] < 0 ? ranks : find(m.src))].push_back(m);
  std::vector<RoundPart> parts;
  for (std::vector<layout::Msg>& part : by_leader)
    if (!part.empty()) parts.push_back(part_of(std::move(part)));
  return parts;
}

// What a rank runs for an item of the schedule.
std::vector<Pass> passes_of(const schedule::Item& item, const CompiledStrategy& s) {
  if (item.pass == Pass::BW && s.strategy.splits_gradients()) return {Pass::B, Pass::W};
  return {item.pass};
}

// So many values of a stage wait to be sent before it makes the next one: one is on its way while the next is computed.
// A slow link would else let a stage fill its memory with what it has made.
constexpr size_t kUnsent = 2;

// What all sends of a replica from one stage to another have in common, if they carry as many tokens.
struct Crossing {
  std::vector<int> ranks;
  layout::MessageList messages;
  i64 bytes = 0;
};
struct CrossingKey {
  int phase = 0, replica = 0, from = 0, to = 0;
  i64 T = 0;
  auto operator<=>(const CrossingKey&) const = default;
};

// What doesn't depend on the options.
struct Transactions {
  std::map<const std::vector<layout::Msg>*, std::vector<RoundPart>> parts;  // of a round's pattern
  std::map<CrossingKey, Crossing> crossings;
  std::map<std::tuple<const ir::Buffer*, const ir::Buffer*, i64>, layout::MessageList::Pattern> boundaries;
};

class Assembler {
 public:
  Assembler(const batch::StepPlan& plan, const Plans& plans, const AssembleOptions& options, Transactions& known)
      : plan_(plan), plans_(plans), options_(options), known_(known) {}

  ir::Program run() {
    for (size_t p = 0; p < plan_.phases.size(); ++p) phase(static_cast<int>(p));
    if (options_.train) finish();
    return in_order(std::move(tasks_), plans_.cluster());
  }

 private:
  const CompiledStrategy& strategy(int p) const {
    return plans_.strategies()[static_cast<size_t>(plan_.phases[static_cast<size_t>(p)].strategy)];
  }

  int add(Task task) {
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
  }

  // Waits for those of `tasks` that share a rank with the task.
  void wait_for(Task& task, const std::vector<int>& tasks, int unit = -1) {
    if (tasks.empty()) return;
    std::vector<bool> own(static_cast<size_t>(plans_.cluster().ranks()));
    for (const int rank : task.ranks) own[static_cast<size_t>(rank)] = true;
    for (const int id : tasks)
      if (std::ranges::any_of(tasks_[static_cast<size_t>(id)].ranks,
                              [&](int rank) { return own[static_cast<size_t>(rank)]; }))
        task.after.push_back({id, unit});
  }

  void phase(int p) {
    moves_.emplace_back(plans_.units().size());
    runs_.emplace_back();
    reductions_.emplace_back();
    borrow(p);
    const auto& replicas = plan_.phases[static_cast<size_t>(p)].replica;
    check(replicas.size() == strategy(p).replicas.size(), "phase {}: {} replicas planned for {}", p, replicas.size(),
          strategy(p).replicas.size());
    for (size_t replica = 0; replica < replicas.size(); ++replica) {
      if (!replicas[replica].empty())
        pipeline(p, static_cast<int>(replica), replicas[replica]);
      else if (options_.train)
        idle_replica(p, static_cast<int>(replica));
    }
    if (options_.train) reduce(p);
  }

  // Parameters of the phase's strategy: working parameters per unit, then moves into it.
  void borrow(int p) {
    const int previous = p == 0 ? -1 : plan_.phases[static_cast<size_t>(p - 1)].strategy;
    const switching::MovePlan& moves = plans_.moves(previous, plan_.phases[static_cast<size_t>(p)].strategy);
    for (const switching::UnitMoves& unit : moves.units) {
      std::vector<int>& made = moves_.back()[static_cast<size_t>(unit.unit)];
      Task allocate{.kind = TaskKind::allocate, .queue = ir::Queue::switching, .phase = p, .unit = unit.unit};
      std::set<int> holders;
      for (const int tensor : plans_.units()[static_cast<size_t>(unit.unit)].tensors)
        for (const layout::Shard& shard : strategy(p).maps.used[static_cast<size_t>(tensor)].shards)
          holders.insert(shard.rank);
      allocate.ranks = union_of(holders);
      if (p > 0) wait_for(allocate, moves_[static_cast<size_t>(p - 1)][static_cast<size_t>(unit.unit)]);
      const int finished =
          unit.unit < options_.prefetch_units ? p - 2 : p - 1;  // never more than two strategies' parameters at a time
      if (finished >= 0) wait_for(allocate, runs_[static_cast<size_t>(finished)]);
      made.push_back(add(std::move(allocate)));
      for (size_t r = 0; r < unit.moves.rounds.size(); ++r)
        move_round(p, unit.unit, static_cast<int>(r), unit.moves.rounds[r]);
    }
  }

  void move_round(int p, int unit, int round, const layout::MessageList& messages) {
    std::vector<int>& made = moves_.back()[static_cast<size_t>(unit)];
    std::vector<int> fresh;
    for (const RoundPart& part : known_parts(messages)) {
      Task move = transfer(TaskKind::move, ir::Queue::switching, p, unit, round, part, messages);
      if (move.bytes == 0) continue;  // local pieces are made by allocate
      wait_for(move, made);
      if (p > 0) wait_for(move, moves_[static_cast<size_t>(p - 1)][static_cast<size_t>(unit)]);
      fresh.push_back(add(std::move(move)));
    }
    made.insert(made.end(), fresh.begin(), fresh.end());
  }

  // Units that share their messages share the parts.
  const std::vector<RoundPart>& known_parts(const layout::MessageList& round) {
    const auto [it, fresh] = known_.parts.try_emplace(round.pattern().get());
    if (fresh) it->second = parts_of(*round.pattern());
    return it->second;
  }

  Task transfer(TaskKind kind, ir::Queue queue, int p, int unit, int round, const RoundPart& part,
                const layout::MessageList& all) const {
    Task task{.kind = kind, .queue = queue, .phase = p, .unit = unit, .round = round, .ranks = part.ranks};
    if (all.ranks())
      for (int& rank : task.ranks) rank = (*all.ranks())[static_cast<size_t>(rank)];
    task.bytes = part.elements * size_of(ir::type_of(kind, plans_.graph().precision()));
    task.messages = {part.messages, all.ranks(), all.tensors()};
    return task;
  }

  void pipeline(int p, int replica, const std::vector<batch::MicroBatch>& micro_batches) {
    const CompiledStrategy& s = strategy(p);
    const int group = s.replicas[static_cast<size_t>(replica)].group;
    const schedule::Schedule schedule = schedule_of(s, group, micro_batches, options_.train);
    std::set<int> begun;  // positions
    // Sends of a (position, micro-batch), made with the run that produces them; runs are made when what they wait for
    // is there.
    std::map<std::tuple<Pass, int, int>, int> sends;
    std::map<std::pair<Pass, int>, std::vector<int>> sent;  // of a position, in their order
    schedule::run_in_order(schedule::ItemIndex(schedule), [&](schedule::Place place) {
      const schedule::Item& item = schedule.order[static_cast<size_t>(place.stage)][static_cast<size_t>(place.index)];
      const int position = schedule::position_of(schedule.placement, schedule.stages(), place.stage, item.chunk);
      for (const Pass pass : passes_of(item, s)) {
        if (pass != Pass::F && !options_.train) continue;
        const int before = pass == Pass::F ? position - 1 : position + 1,
                  after = pass == Pass::F ? position + 1 : position - 1;
        const Pass what = pass == Pass::F ? Pass::F : Pass::B;
        const auto incoming = sends.find({what, before, item.mb});
        Task run = run_of(p, replica, group, position, pass, item.mb, micro_batches[static_cast<size_t>(item.mb)]);
        if (pass != Pass::W && incoming != sends.end()) run.after.push_back({incoming->second, -1});
        const bool sending = pass != Pass::W && after >= 0 && after < schedule.positions();
        std::vector<int>& own = sent[{what, position}];
        if (sending && own.size() >= kUnsent) run.after.push_back({own[own.size() - kUnsent], -1});
        if (begun.insert(position).second) first_run(run, p, group, position);
        const int id = add(std::move(run));
        runs_.back().push_back(id);
        if (!sending) continue;
        own.push_back(
            add_send(p, replica, group, position, what, item.mb, micro_batches[static_cast<size_t>(item.mb)].T, id));
        sends[{what, position, item.mb}] = own.back();
      }
    });
  }

  // Later runs of the stage come after its first one anyway.
  void first_run(Task& run, int p, int group, int stage) {
    const int reduced = options_.prefetch_units > 0 ? p - 2 : p - 1;  // never more than two strategies' gradients
    if (reduced >= 0) wait_for(run, reductions_[static_cast<size_t>(reduced)]);
    const ir::StageCode& code = strategy(p).groups[static_cast<size_t>(group)].stages[static_cast<size_t>(stage)];
    std::set<int> units;
    for (const ir::Segment* segment : {&code.forward, &code.backward, &code.weight})
      for (const ir::UnitEvent& await : segment->awaits) units.insert(await.unit);
    for (const int unit : units) wait_for(run, moves_.back()[static_cast<size_t>(unit)], unit);
  }

  Task run_of(int p, int replica, int group, int stage, Pass pass, int index, const batch::MicroBatch& mb) const {
    const CompiledStrategy& s = strategy(p);
    Task run{.kind = TaskKind::run,
             .queue = ir::Queue::compute,
             .phase = p,
             .replica = replica,
             .group = group,
             .stage = stage,
             .micro_batch = index};
    run.pass = pass;
    run.ranks = s.replica_ranks(replica, stage);
    run.end = estimate_compute(s.cost[static_cast<size_t>(group)][static_cast<size_t>(stage)].of(pass),
                               static_cast<double>(mb.T), batch::attention_pairs(mb));
    return run;
  }

  int add_send(int p, int replica, int group, int stage, Pass what, int mb, i64 T, int run) {
    const CompiledStrategy& s = strategy(p);
    const bool forward = what == Pass::F;
    const int to = forward ? stage + 1 : stage - 1;
    Task send{.kind = TaskKind::send,
              .queue = forward ? ir::Queue::forward : ir::Queue::backward,
              .phase = p,
              .replica = replica,
              .group = group,
              .stage = stage,
              .micro_batch = mb};
    send.pass = what;
    const Crossing& crossing = crossing_of(s, {p, replica, stage, to, T});
    send.ranks = crossing.ranks;
    send.messages = crossing.messages;
    send.bytes = crossing.bytes;
    send.after.push_back({run, -1});
    return add(std::move(send));
  }

  const Crossing& crossing_of(const CompiledStrategy& s, const CrossingKey& key) {
    const auto [it, fresh] = known_.crossings.try_emplace(key);
    if (!fresh) return it->second;
    const auto& stages = s.groups[static_cast<size_t>(s.replicas[static_cast<size_t>(key.replica)].group)].stages;
    const ir::StageCode &source = stages[static_cast<size_t>(key.from)], &target = stages[static_cast<size_t>(key.to)];
    const bool forward = key.to > key.from;
    const ir::Buffer& out = source.buffers[static_cast<size_t>(forward ? source.act_out : source.grad_out)];
    const ir::Buffer& in = target.buffers[static_cast<size_t>(forward ? target.act_in : target.grad_in)];
    const std::vector<int> from = s.replica_ranks(key.replica, key.from), to = s.replica_ranks(key.replica, key.to);
    std::vector<int> names = from;
    names.insert(names.end(), to.begin(), to.end());
    Crossing& crossing = it->second;
    crossing.messages = {boundary(out, in, from, to, key.T), std::make_shared<const std::vector<int>>(std::move(names)),
                         nullptr};
    std::set<int> members;
    for (const layout::Msg& m : crossing.messages) {
      members.insert({m.src, m.dst});
      if (m.src != m.dst) crossing.bytes += m.box.elements() * size_of(out.type.dtype);
    }
    crossing.ranks = union_of(members);
    return crossing;
  }

  // Replicas differ in their ranks only: numbered by position, a receiver that doesn't send after all that do.
  layout::MessageList::Pattern boundary(const ir::Buffer& out, const ir::Buffer& in, const std::vector<int>& from,
                                        const std::vector<int>& to, i64 T) {
    layout::MessageList::Pattern& known = known_.boundaries[{&out, &in, T}];
    if (known) return known;
    std::vector<int> senders(from.size()), receivers;
    std::iota(senders.begin(), senders.end(), 0);
    for (size_t i = 0; i < to.size(); ++i) {
      const auto own = std::ranges::find(from, to[i]);
      receivers.push_back(
          static_cast<int>(own == from.end() ? from.size() + i : static_cast<size_t>(own - from.begin())));
    }
    return known = std::make_shared<const std::vector<layout::Msg>>(boundary_messages(out, in, senders, receivers, T));
  }

  void idle_replica(int p, int replica) {
    const CompiledStrategy& s = strategy(p);
    const int group = s.replicas[static_cast<size_t>(replica)].group;
    for (size_t stage = 0; stage < s.groups[static_cast<size_t>(group)].stages.size(); ++stage) {
      Task zero{.kind = TaskKind::zero_fill,
                .queue = ir::Queue::compute,
                .phase = p,
                .replica = replica,
                .group = group,
                .stage = static_cast<int>(stage)};
      zero.ranks = s.replica_ranks(replica, static_cast<int>(stage));
      runs_.back().push_back(add(std::move(zero)));
    }
  }

  static constexpr int kAnyUnit = -1;

  // Rank, unit -> the last task that adds to its gradients there; for kAnyUnit the rank's last task.
  std::map<std::pair<int, int>, int> last_writes(int p) const {
    std::map<std::tuple<int, int, Pass>, int> last_runs;  // replica, stage, pass
    for (const int id : runs_.back())
      last_runs[{tasks_[static_cast<size_t>(id)].replica, tasks_[static_cast<size_t>(id)].stage,
                 tasks_[static_cast<size_t>(id)].pass}] = id;
    std::map<std::pair<int, int>, int> last;
    const auto write = [&](int rank, int unit, int id) {
      int& known = last.try_emplace({rank, unit}, id).first->second;
      known = std::max(known, id);
    };
    for (const auto& [run, id] : last_runs) {
      const Task& task = tasks_[static_cast<size_t>(id)];
      const ir::StageCode& code =
          strategy(p).groups[static_cast<size_t>(task.group)].stages[static_cast<size_t>(task.stage)];
      for (const int rank : task.ranks) {
        write(rank, kAnyUnit, id);
        if (task.kind == TaskKind::zero_fill)
          for (const int unit : code.units) write(rank, unit, id);
        else
          for (const ir::UnitEvent& release : code.segment(task.pass).releases) write(rank, release.unit, id);
      }
    }
    return last;
  }

  // Units in the order in which the backward pass completes them. A transfer waits for its members' last run only.
  void reduce(int p) {
    const auto& units = plans_.reduction(plan_.phases[static_cast<size_t>(p)].strategy).units;
    const auto last = last_writes(p);
    for (size_t i = units.size(); i-- > 0;) {
      std::vector<int> made;
      for (size_t r = 0; r < units[i].moves.rounds.size(); ++r) {
        std::vector<int> fresh;
        const layout::MessageList& round = units[i].moves.rounds[r];
        for (const RoundPart& part : known_parts(round)) {
          Task task = transfer(TaskKind::reduce, ir::Queue::bulk, p, units[i].unit, static_cast<int>(r), part, round);
          std::set<int> runs;
          for (const int rank : task.ranks)
            for (const int unit : {units[i].unit, kAnyUnit})
              if (const auto found = last.find({rank, unit}); found != last.end()) {
                runs.insert(found->second);
                break;
              }
          for (const int id : runs)
            task.after.push_back({id, tasks_[static_cast<size_t>(id)].kind == TaskKind::run ? units[i].unit : -1});
          wait_for(task, made);
          fresh.push_back(add(std::move(task)));
        }
        made.insert(made.end(), fresh.begin(), fresh.end());
      }
      reductions_.back().insert(reductions_.back().end(), made.begin(), made.end());
    }
  }

  // Sums to home's further copies, when all phases have added to them.
  void broadcast() {
    for (const switching::UnitMoves& unit : plans_.broadcast().units) {
      std::vector<int> before;
      for (const std::vector<int>& phase : reductions_)
        std::ranges::copy_if(phase, std::back_inserter(before),
                             [&](int id) { return tasks_[static_cast<size_t>(id)].unit == unit.unit; });
      for (size_t r = 0; r < unit.moves.rounds.size(); ++r) {
        const layout::MessageList& round = unit.moves.rounds[r];
        std::vector<int> fresh;
        for (const RoundPart& part : known_parts(round)) {
          Task task = transfer(TaskKind::broadcast, ir::Queue::bulk, -1, unit.unit, static_cast<int>(r), part, round);
          if (task.bytes == 0) continue;
          wait_for(task, before);
          fresh.push_back(add(std::move(task)));
        }
        before.insert(before.end(), fresh.begin(), fresh.end());
        broadcasts_.insert(broadcasts_.end(), fresh.begin(), fresh.end());
      }
    }
  }

  void finish() {
    broadcast();
    Task norm{.kind = TaskKind::norm, .queue = ir::Queue::compute};
    for (int rank = 0; rank < plans_.cluster().ranks(); ++rank) norm.ranks.push_back(rank);
    for (const std::vector<int>& tasks : reductions_) wait_for(norm, tasks);
    wait_for(norm, broadcasts_);
    const int id = add(std::move(norm));
    for (size_t unit = 0; unit < plans_.units().size(); ++unit) {
      Task update{.kind = TaskKind::update, .queue = ir::Queue::compute, .unit = static_cast<int>(unit)};
      std::set<int> owners;
      for (const int tensor : plans_.units()[unit].tensors)
        for (const layout::Shard& shard : plans_.home()[static_cast<size_t>(tensor)].shards) owners.insert(shard.rank);
      update.ranks = union_of(owners);
      update.after.push_back({id, -1});
      add(std::move(update));
    }
  }

  const batch::StepPlan& plan_;
  const Plans& plans_;
  const AssembleOptions& options_;
  std::vector<Task> tasks_;
  std::vector<std::vector<std::vector<int>>> moves_;  // [phase][unit]: allocate and move tasks
  std::vector<std::vector<int>> runs_;                // [phase]: run and zero tasks
  std::vector<std::vector<int>> reductions_;          // [phase]
  std::vector<int> broadcasts_;
  Transactions& known_;
};

}  // namespace

ir::Program assemble(const batch::StepPlan& plan, const Plans& plans, const AssembleOptions& options) {
  return StepAssembler(plan, plans).program(options);
}

struct StepAssembler::Common {
  Transactions transactions;
};

StepAssembler::StepAssembler(const batch::StepPlan& plan, const Plans& plans)
    : plan_(plan), plans_(plans), common_(std::make_unique<Common>()) {}

StepAssembler::~StepAssembler() = default;

ir::Program StepAssembler::program(const AssembleOptions& options) {
  return Assembler(plan_, plans_, options, common_->transactions).run();
}

}  // namespace switchyard::compiler
