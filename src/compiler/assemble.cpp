#include "compiler/assemble.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <tuple>

#include "base/errors.hpp"
#include "compiler/block_sharing.hpp"
#include "compiler/order.hpp"
#include "compiler/replica_schedule.hpp"
#include "compiler/step_assembler.hpp"
#include "compiler/wire.hpp"
#include "schedule/item_index.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

std::vector<int> union_of(std::set<int> set) { return {set.begin(), set.end()}; }

// The runs of a rank for an item of the schedule.
std::vector<Pass> passes_of(const schedule::Item& item, const ir::StageCode& code) {
  if (item.pass == Pass::BW && !code.weight.code.empty() && !code.joins_gradients()) return {Pass::B, Pass::W};
  return {item.pass};
}

// Maximum number of values that wait to be sent before a stage makes the next one: one is on its way while the next is
// computed. A slow link would else let a stage fill its memory with what it has made.
constexpr size_t kUnsent = 2;
// Maximum number of inputs that a stage of an evaluation holds: one comes while the one before is computed. Without a
// backward pass, whose order holds the sender back, a slow stage would else get all.
constexpr int kUnread = 2;

// The common part of all sends of a replica from one stage to another that carry as many tokens.
struct Crossing {
  std::vector<int> ranks;
  layout::MessageList messages;
  codecs::Rule encoding{};
  i64 bytes = 0;
};
struct CrossingKey {
  int phase = 0, replica = 0, from = 0, to = 0;
  std::vector<i64> T{};  // tokens of each ring rank
  auto operator<=>(const CrossingKey&) const = default;
};

// Messages between stages, which don't depend on the options.
struct Sends {
  std::map<CrossingKey, Crossing> crossings;
  std::map<std::tuple<const ir::Buffer*, const ir::Buffer*, std::vector<i64>>, layout::MessageList::Pattern> boundaries;
};

codecs::Rule encoding_of(TaskKind kind, const config::Compression& how) {
  switch (kind) {
    case TaskKind::move:
    case TaskKind::broadcast:
      return how.rule(how.switches);
    case TaskKind::send:
      return how.rule(how.pipeline);
    case TaskKind::gather:
      return how.rule(how.gathers);
    case TaskKind::reduce_scatter:
    case TaskKind::reduce:
      return how.rule_of_gradients();
    default:
      return {};
  }
}

class Assembler {
 public:
  Assembler(const batch::StepPlan& plan, const Plans& plans, const AssembleOptions& options, Sends& known)
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
    reduced_.emplace_back();
    const auto& replicas = plan_.phases[static_cast<size_t>(p)].replica;
    check(replicas.size() == strategy(p).replicas.size(), "phase {}: {} replicas planned for {}", p, replicas.size(),
          strategy(p).replicas.size());
    for (const std::vector<int>& members : in_step(strategy(p))) {
      const bool any = std::ranges::any_of(members, [&](int r) { return !replicas[static_cast<size_t>(r)].empty(); });
      if (any)
        Pipeline(*this, p, members).run();
      else if (options_.train)
        for (const int replica : members) idle_replica(p, replica);
    }
    if (options_.train) reduce(p);
    if (p + 1 < static_cast<int>(plan_.phases.size())) last_runs_.push_back(last_runs());
  }

  // Replicas whose runs share gathers or reductions follow one order of items; any other has its own.
  static std::vector<std::vector<int>> in_step(const CompiledStrategy& s) {
    std::vector<std::vector<int>> together;
    for (int replica = 0; replica < static_cast<int>(s.replicas.size()); ++replica) {
      const auto [group, index] = s.replicas[static_cast<size_t>(replica)];
      if (index % s.groups[static_cast<size_t>(group)].in_step == 0) together.emplace_back();
      together.back().push_back(replica);
    }
    return together;
  }

  // Parameters of the phase's strategy: working parameters per unit, then moves into it.
  void borrow(int p) {
    const int previous = p == 0 ? -1 : plan_.phases[static_cast<size_t>(p - 1)].strategy;
    const switching::MovePlan& moves = plans_.moves(previous, plan_.phases[static_cast<size_t>(p)].strategy);
    for (const switching::UnitMoves& unit : moves.units) {
      std::vector<int>& made = moves_.back()[static_cast<size_t>(unit.unit)];
      Task allocate{.what = ir::Allocate{.unit = unit.unit}, .queue = ir::Queue::switching, .phase = p};
      std::set<int> holders;
      for (const int tensor : plans_.units()[static_cast<size_t>(unit.unit)].tensors)
        for (const layout::Shard& shard : strategy(p).maps.stored[static_cast<size_t>(tensor)].shards)
          holders.insert(shard.rank);
      allocate.ranks = union_of(holders);
      if (p > 0) wait_for(allocate, moves_[static_cast<size_t>(p - 1)][static_cast<size_t>(unit.unit)]);
      const int finished =
          unit.unit < options_.prefetch_units ? p - 2 : p - 1;  // never more than two strategies' parameters at a time
      if (finished >= 0) wait_for(allocate, last_runs_[static_cast<size_t>(finished)]);
      made.push_back(add(std::move(allocate)));
      for (size_t r = 0; r < unit.moves.rounds.size(); ++r)
        move_round(p, unit.unit, static_cast<int>(r), unit.moves.rounds[r]);
    }
  }

  void move_round(int p, int unit, int round, const layout::MessageList& messages) {
    std::vector<int>& made = moves_.back()[static_cast<size_t>(unit)];
    std::vector<int> fresh;
    for (const RoundPart& part : plans_.transactions(messages)) {
      Task move = transfer(ir::Move{.unit = unit, .round = round}, ir::Queue::switching, p, part, messages);
      if (move.bytes == 0) continue;  // local pieces are made by allocate
      wait_for(move, made);
      if (p > 0) wait_for(move, moves_[static_cast<size_t>(p - 1)][static_cast<size_t>(unit)]);
      fresh.push_back(add(std::move(move)));
    }
    made.insert(made.end(), fresh.begin(), fresh.end());
  }

  Task transfer(const ir::AnyTask& what, ir::Queue queue, int p, const RoundPart& part,
                const layout::MessageList& all) const {
    Task task{.what = what, .queue = queue, .phase = p, .ranks = part.ranks};
    if (all.ranks())
      for (int& rank : task.ranks) rank = (*all.ranks())[static_cast<size_t>(rank)];
    const DType type = ir::type_of(task.kind(), plans_.graph().precision());
    task.messages = {part.messages, all.ranks(), all.tensors()};
    const CompiledStrategy& of = p >= 0 ? strategy(p) : plans_.anchor();
    task.encoding = encoding_of(task.kind(), of.strategy.compression);
    task.bytes = task.encoding.codec == codecs::Codec::none ? part.elements * size_of(type)
                                                            : wire_bytes(task, type, plans_.cluster());
    return task;
  }

  // The phase's last run of each rank and queue: those before it are done by then.
  std::vector<int> last_runs() const {
    const QueueNumbers queues(tasks_, plans_.cluster().ranks());
    std::vector<bool> known(queues.count());
    std::vector<int> last;
    const std::vector<int>& runs = runs_.back();
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      const Task& task = tasks_[static_cast<size_t>(*run)];
      bool is_last = false;
      for (const int rank : task.ranks) {
        const size_t queue = queues.of(task, rank);
        is_last = is_last || !known[queue];
        known[queue] = true;
      }
      if (is_last) last.push_back(*run);
    }
    return last;
  }

  // Replicas that follow one order of items. A replica that lacks a micro-batch has no runs of it, but takes part in
  // what the others gather and reduce for theirs.
  class Pipeline {
   public:
    Pipeline(Assembler& assembler, int phase, const std::vector<int>& replicas)
        : a_(assembler),
          phase_(phase),
          s_(assembler.strategy(phase)),
          group_(s_.replicas[static_cast<size_t>(replicas.front())].group) {
      for (const int replica : replicas) members_.push_back({.replica = replica});
    }

    void run() {
      std::vector<batch::MicroBatch> all;
      int mbs = 0;
      for (const Member& member : members_) {
        const auto& own = micro_batches(member);
        all.insert(all.end(), own.begin(), own.end());
        mbs = std::max(mbs, static_cast<int>(own.size()));
      }
      const int together = code_at(0).paired ? 2 : 1;  // micro-batches of an item
      const schedule::Schedule schedule =
          schedule_of(s_, group_, (mbs + together - 1) / together, all, a_.options_.train);
      positions_ = schedule.positions();
      sharing_.resize(static_cast<size_t>(schedule.stages()));
      last_.resize(sharing_.size());
      last_computed_.resize(sharing_.size(), std::vector<int>(members_.size(), -1));
      const auto visit = [&](schedule::Place place, const auto& what) {
        const schedule::Item& item = schedule.order[static_cast<size_t>(place.stage)][static_cast<size_t>(place.index)];
        const int position = schedule::position_of(schedule.placement, schedule.stages(), place.stage, item.chunk);
        std::vector<int> of_item;
        for (int mb = together * item.mb; mb < std::min(together * (item.mb + 1), mbs); ++mb) of_item.push_back(mb);
        for (const Pass pass : passes_of(item, code_at(position)))
          if (pass == Pass::F || a_.options_.train) what(place.stage, position, pass, of_item);
      };
      const schedule::ItemIndex index(schedule);
      for (int stage = 0; stage < schedule.stages(); ++stage)
        for (int i = 0; i < static_cast<int>(schedule.order[static_cast<size_t>(stage)].size()); ++i)
          visit({stage, i}, [&](int, int position, Pass pass, const std::vector<int>& of_item) {
            for (const int mb : of_item) ++items_[runs_of(position, pass, mb)].all;
          });
      schedule::run_in_order(index, [&](schedule::Place place) {
        visit(place, [&](int stage, int position, Pass pass, const std::vector<int>& of_item) {
          item(stage, position, pass, of_item);
        });
      });
      if (!a_.options_.train) hold_back_sends(schedule.stages(), kUnread * together);
    }

   private:
    // sends: of a (position, micro-batch), made with the run that produces them; runs are made when what they wait for
    // is there. read: the end of the run of what is sent. ends: of a (position, micro-batch), the collective with which
    // its pass B ends. sent: of a position, in their order. awaited: units whose parameters the position has waited
    // for.
    struct Member {
      int replica = 0;
      std::map<std::tuple<Pass, int, int>, int> sends{}, read{};
      std::map<std::pair<int, int>, int> ends{};
      std::map<std::pair<Pass, int>, std::vector<int>> sent{};
      std::map<int, std::set<int>> awaited{};
    };
    // The items of a block; of them the runs of each member.
    struct Items {
      int all = 0, begun = 0;
      std::map<size_t, int> run{};
    };

    const ir::StageCode& code_at(int position) const {
      return s_.groups[static_cast<size_t>(group_)].stages[static_cast<size_t>(position)];
    }
    const std::vector<batch::MicroBatch>& micro_batches(const Member& member) const {
      return a_.plan_.phases[static_cast<size_t>(phase_)].replica[static_cast<size_t>(member.replica)];
    }
    bool lacks(const Member& member, int mb) const { return mb >= static_cast<int>(micro_batches(member).size()); }

    // The block whose runs add to the same gradients.
    Block runs_of(int position, Pass pass, int mb) const {
      const ir::StageCode& code = code_at(position);
      return {.position = position, .pass = pass, .first = code.first_of_block(mb), .unit_by_unit = code.every == 1};
    }
    // The block whose runs read the same copy of a unit.
    Block readers_of(int position, Pass pass, int mb, int unit) const {
      const ir::StageCode& code = code_at(position);
      return {.position = position,
              .pass = code.copy_pass(pass, unit),
              .first = code.first_of_block(mb),
              .unit_by_unit = code.every == 1 && !code.one_copy};
    }

    // A member's micro-batches in a block.
    int runs_in(const Member& member, const Block& block) const {
      return std::clamp(static_cast<int>(micro_batches(member).size()) - block.first, 0, code_at(block.position).every);
    }

    // A pass of a micro-batch in an item. begins, ends: of its block's passes. reductions: that were on their way or
    // done when it began. tasks: of each member, its pieces so far.
    struct Turn {
      int stage = 0, position = 0, mb = 0;
      Pass pass = Pass::F;
      Block runs;
      bool begins = false, ends = false;
      size_t reductions = 0;
      std::vector<std::vector<int>> tasks;
    };

    // Micro-batches of an item take turns, piece by piece.
    void item(int stage, int position, Pass pass, const std::vector<int>& mbs) {
      const size_t reductions = sharing_[static_cast<size_t>(stage)].reductions();
      std::vector<Turn> turns;
      for (const int mb : mbs) {
        const Block runs = runs_of(position, pass, mb);
        Items& items = items_.at(runs);
        const bool begins = items.begun++ == 0, ends = items.begun == items.all;
        for (size_t m = 0; m < members_.size(); ++m)
          if (!lacks(members_[m], mb)) ++items.run[m];
        turns.push_back({.stage = stage,
                         .position = position,
                         .mb = mb,
                         .pass = pass,
                         .runs = runs,
                         .begins = begins,
                         .ends = ends,
                         .reductions = reductions,
                         .tasks = std::vector<std::vector<int>>(members_.size())});
      }
      const int pieces = static_cast<int>(code_at(position).segment(pass).cuts.size()) + 1;
      for (int number = 0; number < pieces; ++number)
        for (Turn& turn : turns) add_piece(turn, number, pieces);
    }

    void add_piece(Turn& turn, int number, int pieces) {
      const auto& [stage, position, mb, pass, runs, begins, ends, reductions, tasks] = turn;
      const ir::StageCode& code = code_at(position);
      const ir::Segment& segment = code.segment(pass);
      BlockSharing& sharing = sharing_[static_cast<size_t>(stage)];
      const auto readers = [&](int unit) { return readers_of(turn.position, turn.pass, turn.mb, unit); };
      const int piece = pieces == 1 ? ir::kWhole : number;
      const ir::PieceRange range = ir::range_of(segment, piece);
      const auto here = [&](const std::vector<ir::UnitEvent>& events) {
        std::vector<int> units;
        for (const ir::UnitEvent& event : events)
          if (range.has(event.instr)) units.push_back(event.unit);
        return units;
      };
      const std::vector<int> piece_before = std::exchange(last_[static_cast<size_t>(stage)], {});
      if (code.gathers())
        for (const int unit : here(segment.awaits))
          gather(sharing, readers(unit), unit, code.overlap_transfers ? std::vector<int>() : piece_before);
      const bool makes_gradients = code.reduces() && !ir::units_written(segment, piece).empty();
      const bool begins_unit = makes_gradients && !here(segment.first_writes).empty();
      // One unit's gradients are made while those of the one before are reduced, or one block's.
      const size_t awaited = runs.unit_by_unit ? std::max<size_t>(sharing.reductions(), 1) - 1 : reductions;
      for (size_t m = 0; m < members_.size(); ++m) {
        Member& member = members_[m];
        const bool runs_it = !lacks(member, mb);
        if (!runs_it && !(makes_gradients && begins && lacks(member, runs.first))) continue;
        Task task = a_.task_of(phase_, {.replica = member.replica,
                                        .group = group_,
                                        .stage = position,
                                        .micro_batch = mb,
                                        .pass = pass,
                                        .piece = piece});
        if (code.gathers() && runs_it)
          for (const int unit : here(segment.awaits))
            a_.wait_for(task, sharing.awaited_gathers(readers(unit), unit, static_cast<int>(m)));
        if (!code.overlap_transfers)
          a_.wait_for(task, sharing.awaited_reductions(static_cast<int>(m), sharing.reductions()));
        else if (begins_unit && items_.at(runs).run[m] == runs_in(member, runs))
          a_.wait_for(task, sharing.awaited_reductions(static_cast<int>(m), awaited));
        if (runs_it) take_turn(task, turn, m);
        const int id = runs_it ? add_run(member, std::move(task), !has_computed(turn, m), number + 1 == pieces)
                               : add_zero(std::move(task));
        turn.tasks[m].push_back(id);
        if (computes(id)) last_computed_[static_cast<size_t>(stage)][m] = id;
        last_[static_cast<size_t>(stage)].push_back(id);
        if (code.gathers() && runs_it)
          for (const int unit : here(segment.last_reads)) sharing.read(readers(unit), unit, static_cast<int>(m), id);
        if (code.reduces())
          for (const int unit : here(segment.releases)) sharing.wrote(runs, unit, static_cast<int>(m), id);
      }
      if (code.gathers())
        for (const int unit : here(segment.last_reads)) sharing.item_read(readers(unit), unit);
      if (code.reduces() && ends)
        for (const int unit : here(segment.releases)) reduce(sharing, runs, unit);
    }

    // A collective follows what was computed last, by the micro-batch itself where this is not its first piece. What is
    // computed first for weights follows the collectives with which the micro-batch's pass B ended, as it may drop what
    // they read; other passes wait for what is sent between them.
    void take_turn(Task& task, const Turn& turn, size_t member) const {
      const ir::Segment& segment = code_at(turn.position).segment(turn.pass);
      const std::vector<int>& own = turn.tasks[member];
      for (const int piece : ir::awaited_pieces(segment, task.piece()))
        task.after.push_back({own[static_cast<size_t>(piece)], -1});
      const auto last = std::find_if(own.rbegin(), own.rend(), [&](int id) { return computes(id); });
      if (!ir::is_collective(segment, task.piece())) {
        const auto& ends = members_[member].ends;
        if (const auto end = ends.find({turn.position, turn.mb});
            turn.pass == Pass::W && last == own.rend() && end != ends.end())
          task.after.push_back({end->second, -1});
        return;
      }
      task.queue = ir::Queue::collective;
      const int before = last != own.rend() ? *last : last_computed_[static_cast<size_t>(turn.stage)][member];
      if (before >= 0) task.after.push_back({before, -1});
    }

    bool computes(int id) const { return a_.tasks_[static_cast<size_t>(id)].queue == ir::Queue::compute; }

    // Whether a piece of the micro-batch's run is computed already. Collectives ahead of it are on another queue, and
    // may be of positions alone, so what comes next still has to wait for the run's input.
    bool has_computed(const Turn& turn, size_t member) const {
      return std::ranges::any_of(turn.tasks[member], [&](int id) { return computes(id); });
    }

    // A unit's copy for a block, unless an earlier item has it. before: tasks that it waits for.
    void gather(BlockSharing& sharing, const Block& readers, int unit, std::vector<int> before) {
      if (sharing.has_copy(readers, unit)) return;
      const std::vector<int>& moves = a_.moves_.back()[static_cast<size_t>(unit)];
      before.insert(before.end(), moves.begin(), moves.end());
      if (sharing.has_no_copies() && phase_ > 0) {
        const std::vector<int>& runs = a_.last_runs_.back();
        before.insert(before.end(), runs.begin(), runs.end());
      }
      const std::vector<int> room = sharing.begin_copy(readers, unit, reading(readers, unit));
      before.insert(before.end(), room.begin(), room.end());
      sharing.gathered(readers, unit,
                       a_.transfers_of_run(phase_, transfer_of<ir::Gather>(readers, unit), ir::Queue::gather,
                                           transfers(readers.position, unit).gather,
                                           [&](Task& task) { a_.wait_for(task, before); }));
    }

    // Items that read a unit's copy.
    int reading(const Block& readers, int unit) const {
      const ir::StageCode& code = code_at(readers.position);
      int count = 0;
      for (const Pass pass : {Pass::F, Pass::B, Pass::BW})
        if (const auto items = items_.find(runs_of(readers.position, pass, readers.first));
            items != items_.end() && code.copy_pass(pass, unit) == readers.pass &&
            std::ranges::count(code.segment(pass).awaits, unit, &ir::UnitEvent::unit) > 0)
          count += items->second.all;
      return count;
    }

    void reduce(BlockSharing& sharing, const Block& runs, int unit) {
      const std::vector<int> made = sharing.complete(runs, unit);
      const std::vector<int> reductions =
          a_.transfers_of_run(phase_, transfer_of<ir::ReduceScatter>(runs, unit), ir::Queue::bulk,
                              transfers(runs.position, unit).reduce, [&](Task& task) {
                                for (const int id : made)
                                  a_.wait_for(task, {id}, a_.tasks_[static_cast<size_t>(id)].is<ir::Run>() ? unit : -1);
                              });
      sharing.reduced(reductions);
      std::vector<int>& all = a_.reduced_.back();
      all.insert(all.end(), reductions.begin(), reductions.end());
    }

    template <class Transfer>
    Transfer transfer_of(const Block& block, int unit) const {
      return {.group = group_, .stage = block.position, .micro_batch = block.first, .pass = block.pass, .unit = unit};
    }

    const RunTransfers& transfers(int position, int unit) const {
      const int strategy = a_.plan_.phases[static_cast<size_t>(phase_)].strategy;
      const size_t set = static_cast<size_t>(s_.replicas[static_cast<size_t>(members_.front().replica)].index /
                                             s_.groups[static_cast<size_t>(group_)].in_step);
      const auto& units = a_.plans_.of_runs(strategy)[static_cast<size_t>(group_)][set][static_cast<size_t>(position)];
      return *std::ranges::find(units, unit, &RunTransfers::unit);
    }

    int add_zero(Task task) {
      a_.runs_.back().push_back(a_.add(std::move(task)));
      return a_.runs_.back().back();
    }

    // begins: no piece of the run is computed before this one. last: piece of the run.
    int add_run(Member& member, Task run, bool begins, bool last) {
      const int position = run.stage(), mb = run.micro_batch();
      const Pass pass = run.pass(), what = pass == Pass::F ? Pass::F : Pass::B;
      const int before = pass == Pass::F ? position - 1 : position + 1,
                after = pass == Pass::F ? position + 1 : position - 1;
      const bool sending = pass != Pass::W && after >= 0 && after < positions_;
      std::vector<int>& own = member.sent[{what, position}];
      const auto incoming = member.sends.find({what, before, mb});
      if (begins && pass != Pass::W && incoming != member.sends.end()) run.after.push_back({incoming->second, -1});
      if (begins && sending && own.size() >= kUnsent) run.after.push_back({own[own.size() - kUnsent], -1});
      await_parameters(member, run);
      const int id = a_.add(std::move(run));
      a_.runs_.back().push_back(id);
      if (last && pass == Pass::B && a_.tasks_[static_cast<size_t>(id)].queue == ir::Queue::collective)
        member.ends[{position, mb}] = id;
      if (last && !a_.options_.train) member.read[{what, before, mb}] = id;
      if (!last || !sending) return id;
      own.push_back(a_.add_send(phase_, member.replica, group_, position, what, mb,
                                micro_batches(member)[static_cast<size_t>(mb)].T, id));
      member.sends[{what, position, mb}] = own.back();
      return id;
    }

    // A send waits for the receiver's run of what was sent so many micro-batches before; unless it goes to another
    // chunk, which the receiver begins when it has run all of the one before.
    void hold_back_sends(int stages, int micro_batches) {
      for (const Member& member : members_)
        for (const auto& [what, send] : member.sends) {
          const auto& [pass, position, mb] = what;
          const auto read = member.read.find({pass, position, mb - micro_batches});
          if ((position + 1) % stages != 0 && read != member.read.end())
            a_.tasks_[static_cast<size_t>(send)].after.push_back({read->second, -1});
        }
    }

    // Runs of a position wait for a unit once: later ones come after those anyway.
    void await_parameters(Member& member, Task& run) {
      const int earlier = a_.options_.prefetch_units > 0 ? phase_ - 2 : phase_ - 1;  // never more than two strategies'
      const auto [known, begins] = member.awaited.try_emplace(run.stage());          // gradients
      if (begins && earlier >= 0) a_.wait_for(run, a_.reductions_[static_cast<size_t>(earlier)]);
      if (code_at(run.stage()).gathers()) return;  // what is gathered waits
      const ir::Segment& segment = code_at(run.stage()).segment(run.pass());
      for (const int unit : ir::units_read(segment, run.piece()))
        if (known->second.insert(unit).second) a_.wait_for(run, a_.moves_.back()[static_cast<size_t>(unit)], unit);
    }

    Assembler& a_;
    int phase_;
    const CompiledStrategy& s_;
    int group_, positions_ = 0;
    std::vector<Member> members_;
    std::map<Block, Items> items_;       // by runs_of
    std::vector<BlockSharing> sharing_;  // one for each of the schedule's stages
    // By stage of the schedule: tasks of all members for the piece before; the last one of each that computes.
    std::vector<std::vector<int>> last_, last_computed_;
  };

  // All rounds of a unit's transfer for runs, each with what `waits` adds and after those before it; the tasks.
  template <class Transfer, class Waits>
  std::vector<int> transfers_of_run(int p, Transfer what, ir::Queue queue, const switching::SharedRounds& moves,
                                    const Waits& waits) {
    std::vector<int> made;
    for (size_t r = 0; r < moves.rounds.size(); ++r) {
      std::vector<int> fresh;
      for (const RoundPart& part : plans_.transactions(moves.rounds[r])) {
        what.round = static_cast<int>(r);
        Task task = transfer(what, queue, p, part, moves.rounds[r]);
        waits(task);
        wait_for(task, made);
        fresh.push_back(add(std::move(task)));
      }
      made.insert(made.end(), fresh.begin(), fresh.end());
    }
    return made;
  }

  // The task of a run, or of what stands for it where the replica lacks the micro-batch.
  Task task_of(int p, const ir::Run& run) const {
    const CompiledStrategy& s = strategy(p);
    Task task{.what = run, .queue = ir::Queue::compute, .phase = p, .ranks = s.replica_ranks(run.replica, run.stage)};
    const auto& own = plan_.phases[static_cast<size_t>(p)].replica[static_cast<size_t>(run.replica)];
    if (run.micro_batch >= static_cast<int>(own.size())) {
      task.what = ir::ZeroFill{run};
      return task;
    }
    const batch::MicroBatch& mb = own[static_cast<size_t>(run.micro_batch)];
    i64 whole = 0;
    for (size_t ring = 0; ring < mb.T.size(); ++ring)
      whole = std::max(
          whole, estimate_compute(s.cost[static_cast<size_t>(run.group)][static_cast<size_t>(run.stage)].of(run.pass),
                                  static_cast<double>(mb.T[ring]), batch::attention_pairs(mb.shard[ring])));
    const ir::Segment& segment =
        s.groups[static_cast<size_t>(run.group)].stages[static_cast<size_t>(run.stage)].segment(run.pass);
    task.end = run.piece == ir::kWhole ? whole : whole / static_cast<i64>(segment.cuts.size() + 1);
    return task;
  }

  int add_send(int p, int replica, int group, int stage, Pass what, int mb, const std::vector<i64>& T, int run) {
    const CompiledStrategy& s = strategy(p);
    const bool forward = what == Pass::F;
    const int to = forward ? stage + 1 : stage - 1;
    const Crossing& crossing = crossing_of(s, {.phase = p, .replica = replica, .from = stage, .to = to, .T = T});
    return add({.what = ir::Send{.replica = replica, .group = group, .stage = stage, .micro_batch = mb, .pass = what},
                .queue = forward ? ir::Queue::forward : ir::Queue::backward,
                .phase = p,
                .ranks = crossing.ranks,
                .after = {{run, -1}},
                .messages = crossing.messages,
                .encoding = crossing.encoding,
                .bytes = crossing.bytes});
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
    crossing.encoding = encoding_of(TaskKind::send, s.strategy.compression);
    crossing.bytes = wire_bytes({.what = ir::Send{}, .messages = crossing.messages, .encoding = crossing.encoding},
                                out.type.dtype, plans_.cluster());
    std::set<int> members;
    for (const layout::Msg& m : crossing.messages) members.insert({m.src, m.dst});
    crossing.ranks = union_of(members);
    return crossing;
  }

  // Replicas differ in their ranks only: numbered by position, a receiver that doesn't send after all that do. Each
  // ring rank sends to the same one of the other stage.
  layout::MessageList::Pattern boundary(const ir::Buffer& out, const ir::Buffer& in, const std::vector<int>& from,
                                        const std::vector<int>& to, const std::vector<i64>& T) {
    layout::MessageList::Pattern& known = known_.boundaries[{&out, &in, T}];
    if (known) return known;
    std::vector<int> senders(from.size()), receivers;
    std::iota(senders.begin(), senders.end(), 0);
    for (size_t i = 0; i < to.size(); ++i) {
      const auto own = std::ranges::find(from, to[i]);
      receivers.push_back(
          static_cast<int>(own == from.end() ? from.size() + i : static_cast<size_t>(own - from.begin())));
    }
    const auto part = [&](const std::vector<int>& all, size_t ring) {
      const auto wide = static_cast<std::ptrdiff_t>(all.size() / T.size());
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(ring) * wide;
      return std::vector<int>(first, first + wide);
    };
    std::vector<layout::Msg> messages;
    for (size_t ring = 0; ring < T.size(); ++ring)
      std::ranges::copy(boundary_messages(out, in, part(senders, ring), part(receivers, ring), T[ring]),
                        std::back_inserter(messages));
    return known = std::make_shared<const layout::MessagePattern>(std::move(messages));
  }

  void idle_replica(int p, int replica) {
    const CompiledStrategy& s = strategy(p);
    const int group = s.replicas[static_cast<size_t>(replica)].group;
    for (size_t stage = 0; stage < s.groups[static_cast<size_t>(group)].stages.size(); ++stage) {
      runs_.back().push_back(
          add({.what = ir::ZeroFill{{.replica = replica, .group = group, .stage = static_cast<int>(stage)}},
               .queue = ir::Queue::compute,
               .phase = p,
               .ranks = s.replica_ranks(replica, static_cast<int>(stage))}));
    }
  }

  static constexpr int kAnyUnit = -1;

  // Rank, unit -> the last task that adds to its gradients there; for kAnyUnit the rank's last task.
  std::map<std::pair<int, int>, int> last_writes(int p) const {
    std::map<std::tuple<int, int, Pass, int>, int> last_runs;  // replica, stage, pass, piece
    for (const int id : runs_.back()) {
      const Task& task = tasks_[static_cast<size_t>(id)];
      last_runs[{task.replica(), task.stage(), task.pass(), task.piece()}] = id;
    }
    std::map<std::pair<int, int>, int> last;
    const auto write = [&](int rank, int unit, int id) {
      int& known = last.try_emplace({rank, unit}, id).first->second;
      known = std::max(known, id);
    };
    for (const auto& [run, id] : last_runs) {
      const Task& task = tasks_[static_cast<size_t>(id)];
      const ir::StageCode& code =
          strategy(p).groups[static_cast<size_t>(task.group())].stages[static_cast<size_t>(task.stage())];
      for (const int rank : task.ranks) {
        write(rank, kAnyUnit, id);
        if (task.micro_batch() < 0)
          for (const int unit : code.units) write(rank, unit, id);
        else if (!code.reduces()) {
          const ir::Segment& segment = code.segment(task.pass());
          const ir::PieceRange range = ir::range_of(segment, task.piece());
          for (const ir::UnitEvent& release : segment.releases)
            if (range.has(release.instr)) write(rank, release.unit, id);
        }
      }
    }
    for (const int id : reduced_.back())
      for (const int rank : tasks_[static_cast<size_t>(id)].ranks)
        write(rank, tasks_[static_cast<size_t>(id)].unit(), id);
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
        for (const RoundPart& part : plans_.transactions(round)) {
          Task task = transfer(ir::Reduce{.unit = units[i].unit, .round = static_cast<int>(r)}, ir::Queue::bulk, p,
                               part, round);
          std::set<int> runs;
          for (const int rank : task.ranks)
            for (const int unit : {units[i].unit, kAnyUnit})
              if (const auto found = last.find({rank, unit}); found != last.end()) {
                runs.insert(found->second);
                break;
              }
          for (const int id : runs)
            task.after.push_back({id, tasks_[static_cast<size_t>(id)].is<ir::Run>() ? units[i].unit : -1});
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
                             [&](int id) { return tasks_[static_cast<size_t>(id)].unit() == unit.unit; });
      for (size_t r = 0; r < unit.moves.rounds.size(); ++r) {
        const layout::MessageList& round = unit.moves.rounds[r];
        std::vector<int> fresh;
        for (const RoundPart& part : plans_.transactions(round)) {
          Task task = transfer(ir::Broadcast{.unit = unit.unit, .round = static_cast<int>(r)}, ir::Queue::bulk, -1,
                               part, round);
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
    Task norm{.what = ir::Norm{}, .queue = ir::Queue::compute};
    for (int rank = 0; rank < plans_.cluster().ranks(); ++rank) norm.ranks.push_back(rank);
    for (const std::vector<int>& tasks : reductions_) wait_for(norm, tasks);
    wait_for(norm, broadcasts_);
    const int id = add(std::move(norm));
    for (size_t unit = 0; unit < plans_.units().size(); ++unit) {
      Task update{.what = ir::Update{.unit = static_cast<int>(unit)}, .queue = ir::Queue::compute};
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
  std::vector<std::vector<int>> runs_;                // [phase]: run and zero-fill tasks
  std::vector<std::vector<int>> last_runs_;           // [phase but the last]: those that all others come before
  std::vector<std::vector<int>> reduced_;             // [phase]: gradients of runs to their owners
  std::vector<std::vector<int>> reductions_;          // [phase]: to home
  std::vector<int> broadcasts_;
  Sends& known_;
};

}  // namespace

ir::Program assemble(const batch::StepPlan& plan, const Plans& plans, const AssembleOptions& options) {
  return StepAssembler(plan, plans).program(options);
}

struct StepAssembler::Common {
  Sends sends;
};

StepAssembler::StepAssembler(const batch::StepPlan& plan, const Plans& plans)
    : plan_(plan), plans_(plans), common_(std::make_unique<Common>()) {}

StepAssembler::~StepAssembler() = default;

ir::Program StepAssembler::program(const AssembleOptions& options) {
  return Assembler(plan_, plans_, options, common_->sends).run();
}

}  // namespace switchyard::compiler
