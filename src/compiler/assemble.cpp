#include "compiler/assemble.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/errors.hpp"
#include "compiler/order.hpp"
#include "compiler/lane_schedule.hpp"
#include "schedule/item_index.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

bool meet(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int r) { return std::find(b.begin(), b.end(), r) != b.end(); });
}

std::vector<int> union_of(std::set<int> set) { return {set.begin(), set.end()}; }

// Messages of a round, parted into transactions that share no rank. Local messages go with their rank's transaction; those of
// ranks without one share a last part.
std::vector<std::vector<layout::Msg>> parts_of(const std::vector<layout::Msg>& round) {
  int ranks = 0;
  for (const layout::Msg& m : round) ranks = std::max({ranks, m.src + 1, m.dst + 1});
  std::vector<int> leader(static_cast<size_t>(ranks), -1);  // -1: in no transaction
  const auto find = [&](int rank) {
    while (leader[static_cast<size_t>(rank)] != rank) rank = leader[static_cast<size_t>(rank)] = leader[static_cast<size_t>(leader[static_cast<size_t>(rank)])];
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
  for (const layout::Msg& m : round) by_leader[static_cast<size_t>(leader[static_cast<size_t>(m.src)] < 0 ? ranks : find(m.src))].push_back(m);
  std::erase_if(by_leader, [](const std::vector<layout::Msg>& part) { return part.empty(); });
  return by_leader;
}

// What a rank runs for an item of the schedule.
std::vector<ir::Pass> passes_of(const schedule::Item& item, const CompiledStrategy& s) {
  if (item.what == 'F') return {ir::Pass::F};
  if (item.what == 'B') return {ir::Pass::B};
  if (item.what == 'W') return {ir::Pass::W};
  return s.strategy.splits_gradients() ? std::vector{ir::Pass::B, ir::Pass::W} : std::vector{ir::Pass::BW};
}

class Assembler {
 public:
  Assembler(const batch::StepPlan& plan, const Plans& plans, const AssembleOptions& options)
      : plan_(plan), plans_(plans), options_(options) {}

  ir::Program run() {
    for (size_t p = 0; p < plan_.phases.size(); ++p) phase(static_cast<int>(p));
    if (options_.train) finish();
    return in_order(std::move(rows_), plans_.cluster());
  }

 private:
  const CompiledStrategy& strategy(int p) const {
    return plans_.strategies()[static_cast<size_t>(plan_.phases[static_cast<size_t>(p)].strategy)];
  }

  int add(Task task) {
    rows_.push_back(std::move(task));
    return static_cast<int>(rows_.size()) - 1;
  }

  // Waits for those of `rows` that share a rank with the task.
  void wait_for(Task& task, const std::vector<int>& rows, int unit = -1) {
    for (const int row : rows)
      if (meet(task.ranks, rows_[static_cast<size_t>(row)].ranks)) task.after.push_back({row, unit});
  }

  void phase(int p) {
    moves_.emplace_back(plans_.units().size());
    runs_.emplace_back();
    flushes_.emplace_back();
    borrow(p);
    const auto& lanes = plan_.phases[static_cast<size_t>(p)].lane;
    check(lanes.size() == strategy(p).lanes.size(), "phase {}: {} lanes planned for {}", p, lanes.size(), strategy(p).lanes.size());
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (!lanes[lane].empty())
        pipeline(p, static_cast<int>(lane), lanes[lane]);
      else if (options_.train)
        idle_lane(p, static_cast<int>(lane));
    }
    if (options_.train) flush(p);
  }

  // Parameters of the phase's strategy: a bank per unit, then moves into it.
  void borrow(int p) {
    const int previous = p == 0 ? -1 : plan_.phases[static_cast<size_t>(p - 1)].strategy;
    const switching::MovePlan& moves = plans_.moves(previous, plan_.phases[static_cast<size_t>(p)].strategy);
    for (const switching::UnitMoves& unit : moves.units) {
      std::vector<int>& made = moves_.back()[static_cast<size_t>(unit.unit)];
      Task prepare{.kind = TaskKind::prepare, .queue = ir::Queue::switching, .phase = p, .unit = unit.unit};
      std::set<int> holders;
      for (const int tensor : plans_.units()[static_cast<size_t>(unit.unit)].tensors)
        for (const layout::Shard& shard : strategy(p).maps.used[static_cast<size_t>(tensor)].shards) holders.insert(shard.rank);
      prepare.ranks = union_of(holders);
      if (p > 0) wait_for(prepare, moves_[static_cast<size_t>(p - 1)][static_cast<size_t>(unit.unit)]);
      const int finished = unit.unit < options_.prefetch_units ? p - 2 : p - 1;  // never more than two strategies' parameters at a time
      if (finished >= 0) wait_for(prepare, runs_[static_cast<size_t>(finished)]);
      made.push_back(add(std::move(prepare)));
      for (size_t r = 0; r < unit.moves.rounds.size(); ++r) move_round(p, unit.unit, static_cast<int>(r), unit.moves.rounds[r]);
    }
  }

  void move_round(int p, int unit, int round, const std::vector<layout::Msg>& messages) {
    std::vector<int>& made = moves_.back()[static_cast<size_t>(unit)];
    std::vector<int> fresh;
    for (std::vector<layout::Msg>& part : parts_of(messages)) {
      Task move = transfer(TaskKind::move, ir::Queue::switching, p, unit, round, std::move(part), plans_.graph().precision().compute);
      if (move.bytes == 0) continue;  // local pieces are made by prepare
      wait_for(move, made);
      if (p > 0) wait_for(move, moves_[static_cast<size_t>(p - 1)][static_cast<size_t>(unit)]);
      fresh.push_back(add(std::move(move)));
    }
    made.insert(made.end(), fresh.begin(), fresh.end());
  }

  Task transfer(TaskKind kind, ir::Queue queue, int p, int unit, int round, std::vector<layout::Msg> part, DType dtype) const {
    Task task{.kind = kind, .queue = queue, .phase = p, .unit = unit, .round = round};
    for (const layout::Msg& m : part) {
      task.ranks.insert(task.ranks.end(), {m.src, m.dst});
      if (m.src != m.dst) task.bytes += m.box.elements() * size_of(dtype);
    }
    std::sort(task.ranks.begin(), task.ranks.end());
    task.ranks.erase(std::unique(task.ranks.begin(), task.ranks.end()), task.ranks.end());
    task.messages = std::move(part);
    return task;
  }

  void pipeline(int p, int lane, const std::vector<batch::MicroBatch>& micro_batches) {
    const CompiledStrategy& s = strategy(p);
    const int group = s.lanes[static_cast<size_t>(lane)].group;
    const schedule::Schedule schedule = schedule_of(s, group, micro_batches, options_.train);
    std::set<int> begun;  // positions
    // Sends of a (position, micro-batch), made with the run that produces them; runs are made when what they wait for is there.
    std::map<std::tuple<ir::Pass, int, int>, int> sends;
    schedule::run_in_order(schedule::ItemIndex(schedule), [&](schedule::Place place) {
      const schedule::Item& item = schedule.order[static_cast<size_t>(place.stage)][static_cast<size_t>(place.index)];
      const int position = schedule::position_of(schedule.placement, schedule.stages(), place.stage, item.chunk);
      for (const ir::Pass pass : passes_of(item, s)) {
        if (pass != ir::Pass::F && !options_.train) continue;
        const int before = pass == ir::Pass::F ? position - 1 : position + 1, after = pass == ir::Pass::F ? position + 1 : position - 1;
        const ir::Pass what = pass == ir::Pass::F ? ir::Pass::F : ir::Pass::B;
        const auto incoming = sends.find({what, before, item.mb});
        Task run = run_of(p, lane, group, position, pass, item.mb, micro_batches[static_cast<size_t>(item.mb)]);
        if (pass != ir::Pass::W && incoming != sends.end()) run.after.push_back({incoming->second, -1});
        if (begun.insert(position).second) first_run(run, p, group, position);
        const int row = add(std::move(run));
        runs_.back().push_back(row);
        if (pass != ir::Pass::W && after >= 0 && after < schedule.positions())
          sends[{what, position, item.mb}] = add_send(p, lane, group, position, what, item.mb, micro_batches[static_cast<size_t>(item.mb)].T, row);
      }
    });
  }

  // Later runs of the stage come after its first one anyway.
  void first_run(Task& run, int p, int group, int stage) {
    const int flushed = options_.prefetch_units > 0 ? p - 2 : p - 1;  // never more than two strategies' gradients
    if (flushed >= 0) wait_for(run, flushes_[static_cast<size_t>(flushed)]);
    const ir::StageCode& code = strategy(p).groups[static_cast<size_t>(group)].stages[static_cast<size_t>(stage)];
    std::set<int> units;
    for (const ir::Segment* segment : {&code.forward, &code.backward, &code.weight})
      for (const ir::UnitEvent& await : segment->awaits) units.insert(await.unit);
    for (const int unit : units) wait_for(run, moves_.back()[static_cast<size_t>(unit)], unit);
  }

  Task run_of(int p, int lane, int group, int stage, ir::Pass pass, int index, const batch::MicroBatch& mb) const {
    const CompiledStrategy& s = strategy(p);
    Task run{.kind = TaskKind::run,
             .queue = ir::Queue::compute,
             .phase = p,
             .lane = lane,
             .group = group,
             .stage = stage,
             .micro_batch = index};
    run.pass = pass;
    run.ranks = s.lane_ranks(lane, stage);
    run.end = estimate_compute(s.cost[static_cast<size_t>(group)][static_cast<size_t>(stage)].of(pass), static_cast<double>(mb.T), batch::causal_pairs(mb));
    return run;
  }

  int add_send(int p, int lane, int group, int stage, ir::Pass what, int mb, i64 T, int run) {
    const CompiledStrategy& s = strategy(p);
    const bool forward = what == ir::Pass::F;
    const int to = forward ? stage + 1 : stage - 1;
    const auto& stages = s.groups[static_cast<size_t>(group)].stages;
    Task send{.kind = TaskKind::send,
              .queue = forward ? ir::Queue::forward : ir::Queue::backward,
              .phase = p,
              .lane = lane,
              .group = group,
              .stage = stage,
              .micro_batch = mb};
    send.pass = what;
    const ir::StageCode &source = stages[static_cast<size_t>(stage)], &target = stages[static_cast<size_t>(to)];
    const ir::Buffer& out = source.buffers[static_cast<size_t>(forward ? source.act_out : source.grad_out)];
    const ir::Buffer& in = target.buffers[static_cast<size_t>(forward ? target.act_in : target.grad_in)];
    send.messages = boundary(s, lane, stage, to, out, in, T);
    std::set<int> members;
    for (const layout::Msg& m : send.messages) {
      members.insert({m.src, m.dst});
      if (m.src != m.dst) send.bytes += m.box.elements() * size_of(out.type.dtype);
    }
    send.ranks = union_of(members);
    send.after.push_back({run, -1});
    return add(std::move(send));
  }

  // Lanes differ in their ranks only.
  std::vector<layout::Msg> boundary(const CompiledStrategy& s, int lane, int stage, int to, const ir::Buffer& out, const ir::Buffer& in, i64 T) {
    const std::vector<int> from = s.lane_ranks(lane, stage), target = s.lane_ranks(lane, to);
    std::vector<layout::Msg>& places = boundaries_[{&out, &in, T}];
    if (places.empty()) {
      places = boundary_messages(out, in, from, target, T);
      for (layout::Msg& m : places) {
        m.src = static_cast<int>(std::ranges::find(from, m.src) - from.begin());
        m.dst = static_cast<int>(std::ranges::find(target, m.dst) - target.begin());
      }
    }
    std::vector<layout::Msg> messages = places;
    for (layout::Msg& m : messages) {
      m.src = from[static_cast<size_t>(m.src)];
      m.dst = target[static_cast<size_t>(m.dst)];
    }
    return messages;
  }

  void idle_lane(int p, int lane) {
    const CompiledStrategy& s = strategy(p);
    const int group = s.lanes[static_cast<size_t>(lane)].group;
    for (size_t stage = 0; stage < s.groups[static_cast<size_t>(group)].stages.size(); ++stage) {
      Task zero{
          .kind = TaskKind::zero, .queue = ir::Queue::compute, .phase = p, .lane = lane, .group = group, .stage = static_cast<int>(stage)};
      zero.ranks = s.lane_ranks(lane, static_cast<int>(stage));
      runs_.back().push_back(add(std::move(zero)));
    }
  }

  static constexpr int kAnyUnit = -1;

  // Rank, unit -> the last row that adds to its gradients there; for kAnyUnit the rank's last row.
  std::map<std::pair<int, int>, int> last_writes(int p) const {
    std::map<std::tuple<int, int, ir::Pass>, int> last_runs;  // lane, stage, pass
    for (const int row : runs_.back()) last_runs[{rows_[static_cast<size_t>(row)].lane, rows_[static_cast<size_t>(row)].stage, rows_[static_cast<size_t>(row)].pass}] = row;
    std::map<std::pair<int, int>, int> last;
    const auto write = [&](int rank, int unit, int row) {
      int& known = last.try_emplace({rank, unit}, row).first->second;
      known = std::max(known, row);
    };
    for (const auto& [run, row] : last_runs) {
      const Task& task = rows_[static_cast<size_t>(row)];
      const ir::StageCode& code = strategy(p).groups[static_cast<size_t>(task.group)].stages[static_cast<size_t>(task.stage)];
      for (const int rank : task.ranks) {
        write(rank, kAnyUnit, row);
        if (task.kind == TaskKind::zero)
          for (const int unit : code.units) write(rank, unit, row);
        else
          for (const ir::UnitEvent& release : code.segment(task.pass).releases) write(rank, release.unit, row);
      }
    }
    return last;
  }

  // Units in the order in which the backward pass completes them. A transfer waits for its members' last run only.
  void flush(int p) {
    const auto& units = strategy(p).flush.units;
    const auto last = last_writes(p);
    for (size_t i = units.size(); i-- > 0;) {
      std::vector<int> made;
      for (size_t r = 0; r < units[i].moves.rounds.size(); ++r) {
        std::vector<int> fresh;
        for (std::vector<layout::Msg>& part : parts_of(units[i].moves.rounds[r])) {
          Task task = transfer(TaskKind::flush, ir::Queue::bulk, p, units[i].unit, static_cast<int>(r), std::move(part),
                               plans_.graph().precision().state);
          std::set<int> runs;
          for (const int rank : task.ranks)
            for (const int unit : {units[i].unit, kAnyUnit})
              if (const auto found = last.find({rank, unit}); found != last.end()) {
                runs.insert(found->second);
                break;
              }
          for (const int row : runs)
            task.after.push_back({row, rows_[static_cast<size_t>(row)].kind == TaskKind::run ? units[i].unit : -1});
          wait_for(task, made);
          fresh.push_back(add(std::move(task)));
        }
        made.insert(made.end(), fresh.begin(), fresh.end());
      }
      flushes_.back().insert(flushes_.back().end(), made.begin(), made.end());
    }
  }

  void finish() {
    Task norm{.kind = TaskKind::norm, .queue = ir::Queue::compute};
    for (int rank = 0; rank < plans_.cluster().ranks(); ++rank) norm.ranks.push_back(rank);
    for (const std::vector<int>& rows : flushes_) wait_for(norm, rows);
    const int row = add(std::move(norm));
    for (size_t unit = 0; unit < plans_.units().size(); ++unit) {
      Task update{.kind = TaskKind::update, .queue = ir::Queue::compute, .unit = static_cast<int>(unit)};
      std::set<int> owners;
      for (const int tensor : plans_.units()[unit].tensors)
        for (const layout::Shard& shard : plans_.home()[static_cast<size_t>(tensor)].shards) owners.insert(shard.rank);
      update.ranks = union_of(owners);
      update.after.push_back({row, -1});
      add(std::move(update));
    }
  }

  const batch::StepPlan& plan_;
  const Plans& plans_;
  const AssembleOptions& options_;
  std::vector<Task> rows_;
  std::vector<std::vector<std::vector<int>>> moves_;  // [phase][unit]: prepare and move rows
  std::vector<std::vector<int>> runs_;                // [phase]: run and zero rows
  std::vector<std::vector<int>> flushes_;             // [phase]
  std::map<std::tuple<const ir::Buffer*, const ir::Buffer*, i64>, std::vector<layout::Msg>> boundaries_;  // by position
};

}  // namespace

ir::Program assemble(const batch::StepPlan& plan, const Plans& plans, const AssembleOptions& options) {
  return Assembler(plan, plans, options).run();
}

}  // namespace switchyard::compiler
