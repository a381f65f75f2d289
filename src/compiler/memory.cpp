#include "compiler/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/allocation.hpp"
#include "base/errors.hpp"
#include "base/units.hpp"
#include "compiler/equivalence_classes.hpp"
#include "compiler/local_stage.hpp"
#include "compiler/memory_meter.hpp"
#include "compiler/order.hpp"
#include "compiler/ring_keys.hpp"
#include "compiler/step_assembler.hpp"
#include "compiler/wire.hpp"
#include "compiler/worst_order.hpp"
#include "ir/autodiff.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

// Tensors of a micro-batch on the rank: which block each buffer of the stage lies in, and the roots.
struct MicroBatchState {
  const LocalStage* local = nullptr;
  const LocalStage::Bytes* bytes = nullptr;
  int position = 0;
  size_t pattern = 0;  // of the replica on hosts
  ir::Extent extent;
  ir::CallSize size;
  i64 feeds = 0, kept = 0;
  RotaryTables tables;          // of its own
  std::vector<int> slot, root;  // block of a buffer, of a root; -1: none
};

// Tasks one after the other.
std::vector<Moment> in_turn(const std::vector<int>& tasks) {
  std::vector<Moment> order;
  for (const int id : tasks) order.push_back({.task = id});
  return order;
}

class Replay {
 public:
  /// In the expected order.
  Replay(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans, const Holdings& holdings,
         LocalStages& stages)
      : Replay(program, plan, plans, holdings, in_turn(program.of_rank[static_cast<size_t>(holdings.rank())]), false,
               stages) {}
  /// In the worst order while parameters move to a phase.
  Replay(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans, const Holdings& holdings,
         const Arrivals& arrivals, int phase, LocalStages& stages)
      : Replay(program, plan, plans, holdings, worst_order(program, arrivals, holdings.rank(), phase), true, stages) {}
  /// order: of the rank's tasks. worst: receives are posted as early as they can be.
  Replay(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans, const Holdings& holdings,
         std::vector<Moment> order, bool worst, LocalStages& stages)
      : program_(program),
        plan_(plan),
        plans_(plans),
        holdings_(holdings),
        units_(static_cast<int>(plans.units().size())),
        tasks_(program.of_rank[static_cast<size_t>(holdings.rank())]),
        worst_(worst),
        order_(std::move(order)),
        random_(plans.graph().is_random()),
        state_(size_of(plans.graph().precision().state)),
        compute_(size_of(plans.graph().precision().compute)),
        activations_(meter_, MemoryClass::activations),
        parameters_(meter_, MemoryClass::parameters),
        gradients_(meter_, MemoryClass::gradients),
        stages_(stages),
        users_(plan.phases.size() * static_cast<size_t>(units_) * 2),
        accumulated_(plan.phases.size() * plans.home().size()),
        phase_peaks_(plan.phases.size()),
        tables_(rotary_tables(plans.graph(), plans.longest_document())) {}

  MemoryPeak run() {
    replay();
    MemoryPeak peak = meter_.peak();
    peak.kept = most_kept_;
    return peak;
  }

  /// The highest total while a phase computes.
  const std::vector<i64>& phase_peaks() const { return phase_peaks_; }

  std::vector<MemoryPeak> by_task() {
    meter_.at(-1);
    meter_.keep_tasks();
    replay();
    return std::move(meter_).tasks();
  }

 private:
  void replay() {
    take_home();
    for (int i = 0; i < 2; ++i) meter_.take(MemoryClass::workspace, bytes_of(tables_));
    for (const auto& [queue, bytes] : encoding_rooms(program_, holdings_.rank(), plans_))
      meter_.take(MemoryClass::workspace, bytes);
    for (const int id : tasks_) {
      if (is_alike(task(id))) {
        for (const bool gradient : uses_of_run(task(id)))
          if (++runs_[{task(id).phase, task(id).stage(), gradient}] == 1)
            for (const int unit : stage_of(task(id)).units) ++users_of({task(id).phase, unit, gradient});
      } else {
        for (const UnitUse& use : unit_uses(task(id), holdings_.rank(), plan_, plans_)) ++users_of(use);
        for (const UnitUse& use : uses_until_start(task(id), holdings_.rank(), program_)) ++users_of(use);
      }
      for (const StateKey& state : states_of(task(id), holdings_.rank())) ++workers_[state];
    }
    const std::multimap<int, int> receives = receives_in_order();
    const auto post = [&](int before) {
      for (auto [it, end] = receives.equal_range(before); it != end; ++it) receive(task(it->second));
    };
    const std::multimap<int, int> handed_over = worst_ ? handovers_of(program_, holdings_.rank()) : Handovers();
    const std::multimap<int, int> rooms = rooms_of(program_, holdings_.rank(), plan_, plans_);
    const auto make_room = [&](int after) {
      for (auto [it, end] = rooms.equal_range(after); it != end; ++it)
        for (const int param : params_of(task(it->second), plan_, plans_)) take_copy(task(it->second), param);
    };
    for (const auto& [after, gather] : rooms) read_copies_.insert(use_of_transfer(task(gather)));
    make_room(kStart);
    post(kStart);
    for (const auto& [id, begins, ends] : order_) {
      meter_.at(id);
      if (begins) {
        for (const UnitUse& use : uses_until_start(task(id), holdings_.rank(), program_)) used(use);
        perform(task(id));
        post(id);
        for (auto [it, end] = handed_over.equal_range(id); it != end; ++it)
          state_of(task(it->second), target_of(task(it->second)));
      }
      if (!ends) continue;
      if (const auto ended = ends_.extract(&task(id)))
        for (const std::function<void()>& end : ended.mapped()) end();
      if (is_alike(task(id))) {
        for (const bool gradient : uses_of_run(task(id)))
          if (--runs_.at({task(id).phase, task(id).stage(), gradient}) == 0)
            for (const int unit : stage_of(task(id)).units) used({task(id).phase, unit, gradient});
      } else {
        for (const UnitUse& use : unit_uses(task(id), holdings_.rank(), plan_, plans_)) used(use);
      }
      make_room(id);
      for (const StateKey& state : states_of(task(id), holdings_.rank()))
        if (--workers_.at(state) == 0) end_state(state);
    }
  }

  // Runs of a stage that use the same units count as one user of each.
  bool is_alike(const Task& t) const { return t.kind() == TaskKind::run && !stage_of(t).reduces(); }
  // The uses that a run has of its units, as in unit_uses: of working parameters (false), and after the forward pass of
  // gradients, too (true).
  static std::span<const bool> uses_of_run(const Task& run) {
    static constexpr std::array<bool, 2> kUses = {false, true};
    return std::span(kUses).first(run.forward() ? 1 : 2);
  }
  void used(const UnitUse& use) {
    if (--users_of(use) == 0) drop(use);
  }

  // Tasks to come that need it.
  int& users_of(const UnitUse& use) {
    if (use.of_run()) return users_of_runs_[use];
    return users_[static_cast<size_t>((use.phase * units_ + use.unit) * 2 + use.gradient)];
  }

  const Task& task(int id) const { return program_.tasks[static_cast<size_t>(id)]; }
  int strategy_of(int phase) const { return phase < 0 ? -1 : plan_.phases[static_cast<size_t>(phase)].strategy; }

  void take_home() {
    for (int unit = 0; unit < units_; ++unit) {
      const i64 n = holdings_.home_elements(unit);
      if (holdings_.has_optimizer()) {
        meter_.take(MemoryClass::master, n * state_);
        for (int i = 0; i < 2; ++i) meter_.take(MemoryClass::moments, n * state_);
        meter_.take(MemoryClass::home_gradients, n * state_);
      }
      if (holdings_.has_compute_copy()) meter_.take(MemoryClass::compute_copy, n * compute_);
    }
    for (const Residual& residual : holdings_.residuals())
      meter_.take(MemoryClass::residuals, residual.box.elements() * state_);
  }

  // Task -> the receives that are posted when it is done, each by its queue, which then has nothing else to do; kStart:
  // before the first task. At the worst pace a send that its queue does first is done as soon as its run is. A receive
  // that waits for a run of the rank is posted after it.
  std::multimap<int, int> receives_in_order() const {
    std::multimap<int, int> receives;
    std::map<QueueKey, int> last;
    std::map<int, size_t> places;  // in the order
    const auto place = [&](int id) {
      if (places.empty())
        for (size_t i = 0; i < order_.size(); ++i)
          if (order_[i].begins) places.emplace(order_[i].task, i);
      return places.at(id);
    };
    for (const int id : tasks_) {
      if (task(id).kind() != TaskKind::send) continue;
      const auto [it, fresh] = last.try_emplace(queue_of(task(id), holdings_.rank()), id);
      int before = fresh ? kStart : std::exchange(it->second, id);
      if (!is_received(task(id), holdings_.rank())) continue;
      if (worst_ && before != kStart && !is_received(task(before), holdings_.rank()))
        before = maker_of(task(before), program_);
      for (const ir::Wait& wait : task(id).after)
        if (task(wait.task).stage() == target_of(task(id)) && (before == kStart || place(before) < place(wait.task)))
          before = wait.task;
      receives.emplace(before, id);
    }
    return receives;
  }

  void perform(const Task& t) {
    if (t.queue == ir::Queue::compute) end_unread(t);
    switch (t.kind()) {
      case TaskKind::allocate:
        return allocate(t);
      case TaskKind::run:
        return run_segment(t);
      case TaskKind::send:
        return sent(t);
      case TaskKind::zero_fill:
        return zero_fill(t);
      case TaskKind::gather:
        if (worst_ && !read_copies_.contains(use_of_transfer(t))) return hold_unread(t);
        for (const int param : t.messages.received(holdings_.rank())) take_copy(t, param);
        return;
      case TaskKind::reduce_scatter:
      case TaskKind::move:
      case TaskKind::reduce:
      case TaskKind::broadcast:
      case TaskKind::norm:
      case TaskKind::update:
        return;
    }
  }

  // WorkingParameters::allocate on paper: memory for what the rank does not have; what the next strategy keeps lives on
  // with its working parameters.
  void allocate(const Task& t) {
    std::map<int, int>& blocks = working_[{t.phase, t.unit(), false}];
    for (const WorkingGroup& group : holdings_.working(strategy_of(t.phase), strategy_of(t.phase - 1), t.unit())) {
      if (group.source == WorkingGroup::Source::home) continue;
      const int fresh = group.source == WorkingGroup::Source::own ? parameters_.take(group.elements * compute_) : -1;
      for (const int p : group.params) {
        int id = fresh;
        if (group.source == WorkingGroup::Source::previous) {
          const std::map<int, int>& before = working_.at({t.phase - 1, t.unit(), false});
          const auto kept = before.find(p);
          if (kept == before.end()) continue;  // home's compute copy
          id = kept->second;
        }
        parameters_.share(id);
        blocks[p] = id;
      }
      if (fresh >= 0) parameters_.drop(fresh);  // its parameters own it now
    }
  }

  void zero_fill(const Task& t) {
    const ir::StageCode& stage = stage_of(t);
    if (t.micro_batch() < 0)
      for (const ir::ParamUse& use : stage.params) accumulate(t.phase, use.param);
    else
      for (const int unit : ir::units_written(stage.segment(t.pass()), t.piece()))
        for (const ir::ParamUse& use : stage.params)
          if (plans_.graph().param(use.param).unit == unit) make_gradient(t, use.param);
  }

  // The copy of a parameter's group that runs read.
  void take_copy(const Task& t, int param) {
    const std::vector<int>& group = holdings_.group_of(param);
    const auto [it, fresh] =
        working_[use_of_run(t, stage_of(t), plans_.graph().param(param).unit, false)].try_emplace(group.front(), -1);
    if (fresh) it->second = parameters_.take(holdings_.used_elements(strategy_of(t.phase), group) * compute_);
  }

  // A copy that no run of the rank reads lies there while it is gathered, however late that is: one at a time, until
  // the rank waits for what is gathered later.
  void hold_unread(const Task& t) {
    std::set<int> groups;
    for (const int param : t.messages.received(holdings_.rank())) groups.insert(holdings_.group_of(param).front());
    i64 bytes = 0;
    for (const int group : groups)
      bytes += allocated(holdings_.used_elements(strategy_of(t.phase), holdings_.group_of(group)) * compute_);
    if (bytes > unread_) meter_.take(MemoryClass::parameters, bytes - std::exchange(unread_, bytes));
    last_unread_ = static_cast<int>(&t - program_.tasks.data());
  }
  void end_unread(const Task& t) {
    const auto is_later = [&](const ir::Wait& wait) {
      return wait.task > last_unread_ && task(wait.task).kind() == TaskKind::gather;
    };
    if (unread_ > 0 && (t.kind() == TaskKind::norm || std::ranges::any_of(t.after, is_later)))
      meter_.drop(MemoryClass::parameters, std::exchange(unread_, 0));
  }

  // The gradient of a run, and that to which it will be added.
  void make_gradient(const Task& t, int param) {
    const std::vector<int>& group = holdings_.group_of(param);
    const auto [it, fresh] =
        gradient_blocks_[use_of_run(t, stage_of(t), plans_.graph().param(param).unit, true)].try_emplace(group.front(),
                                                                                                         -1);
    if (fresh) it->second = gradients_.take(holdings_.made_elements(strategy_of(t.phase), group) * state_);
    accumulate(t.phase, param);
  }

  void drop(const UnitUse& use) {
    if (use.of_run()) {
      auto& blocks = use.gradient ? gradient_blocks_ : working_;
      SharedBlocks& memory = use.gradient ? gradients_ : parameters_;
      for (const auto& [group, id] : blocks[use]) memory.drop(id);
      blocks.erase(use);
      return;
    }
    if (use.gradient) {
      for (const auto& [group, id] : gradient_blocks_[use]) gradients_.drop(id);
      for (const int param : plans_.units()[static_cast<size_t>(use.unit)].tensors)
        accumulated(use.phase, param) = false;
      gradient_blocks_.erase(use);
      return;
    }
    for (const auto& [param, id] : working_[use]) parameters_.drop(id);
    working_.erase(use);
  }

  std::vector<bool>::reference accumulated(int phase, int param) {
    return accumulated_[static_cast<size_t>(phase) * plans_.home().size() + static_cast<size_t>(param)];
  }

  void accumulate(int phase, int param) {
    if (accumulated(phase, param)) return;
    accumulated(phase, param) = true;
    const std::vector<int>& group = holdings_.group_of(param);
    const auto [it, fresh] =
        gradient_blocks_[{phase, plans_.graph().param(param).unit, true}].try_emplace(group.front(), -1);
    if (fresh) it->second = gradients_.take(holdings_.gradient_elements(strategy_of(phase), group) * state_);
  }

  const ir::StageCode& stage_of(const Task& t, int stage) const {
    const CompiledStrategy& s = plans_.strategies()[static_cast<size_t>(strategy_of(t.phase))];
    return s.groups[static_cast<size_t>(t.group())].stages[static_cast<size_t>(stage)];
  }
  const ir::StageCode& stage_of(const Task& t) const { return stage_of(t, t.stage()); }

  const CompiledStrategy& compiled(const Task& t) const {
    return plans_.strategies()[static_cast<size_t>(strategy_of(t.phase))];
  }
  RunPlace place(const Task& t, int stage) const { return compiled(t).place_of(t.replica(), stage, holdings_.rank()); }

  MicroBatchState& state_of(const Task& t, int stage) {
    const auto [it, fresh] =
        states_.try_emplace({.phase = t.phase, .replica = t.replica(), .micro_batch = t.micro_batch(), .stage = stage});
    if (!fresh) return it->second;
    const auto& mb = plan_.phases[static_cast<size_t>(t.phase)]
                         .replica[static_cast<size_t>(t.replica())][static_cast<size_t>(t.micro_batch())];
    const auto [ring, position] = place(t, stage);
    it->second.position = position;
    it->second.pattern =
        ir::pattern_of(stage_of(t, stage), compiled(t).code_ranks(t.replica(), stage, ring), plans_.cluster());
    it->second.local = &stages_.at(stage_of(t, stage), it->second.position);
    it->second.slot.assign(it->second.local->buffers(), -1);
    it->second.root.assign(it->second.local->roots(), -1);
    const i64 T = mb.T[static_cast<size_t>(ring)];
    const std::span<const batch::Piece> shard = mb.shard[static_cast<size_t>(ring)];
    it->second.extent = {T, batch::squared_lengths(shard)};
    it->second.bytes = &it->second.local->all_bytes(it->second.extent);
    const i64 rows = key_rows(compiled(t), t.replica(), stage, place(t, stage), mb, plans_.cluster());
    it->second.size = {.tokens = T,
                       .longest = batch::longest(shard),
                       .seen_keys = rows,
                       .in_steps = rows > 0 && compiled(t).strategy.exchange == KeyPassing::ring,
                       .sequences = plans_.how().on_devices ? static_cast<i64>(shard.size()) + 1 : 0,
                       .element_kernels = plans_.how().element_kernels,
                       .in_ring = compiled(t).ring_ranks(t.replica()) > 1};
    const i64 weights = allocated(T * size_of(DType::f64));
    const i64 ends = compute_ == size_of(DType::bf16) ? 2 * it->second.size.sequences * size_of(DType::i32) : 0;
    it->second.feeds = (random_ ? 4 : 3) * allocated(T * size_of(DType::i64)) + allocated(T * state_) + allocated(ends);
    meter_.take(MemoryClass::workspace, it->second.feeds);
    if (state_ != size_of(DType::f64)) meter_.touch(MemoryClass::workspace, weights);  // made in fp64
    return it->second;
  }

  void end_state(const StateKey& key) {
    const auto it = states_.find(key);
    if (it == states_.end()) return;
    for (const std::vector<int>* blocks : {&it->second.slot, &it->second.root})
      for (const int id : *blocks)
        if (id >= 0) activations_.drop(id);
    meter_.drop(MemoryClass::workspace, it->second.feeds);
    for (int i = 0; i < 2; ++i) meter_.drop(MemoryClass::workspace, bytes_of(it->second.tables));
    kept_ -= it->second.kept;
    states_.erase(it);
  }

  // SegmentRunner::allocate on paper: members of a root share one block.
  void allocate(const ir::StageCode& stage, int buffer, MicroBatchState& state) {
    int& slot = state.slot[static_cast<size_t>(buffer)];
    if (slot >= 0) return;
    const ir::Buffer& b = stage.buffers[static_cast<size_t>(buffer)];
    if (b.root < 0) {
      slot = activations_.take(state.bytes->of_buffer[static_cast<size_t>(buffer)]);
      return;
    }
    int& root = state.root[static_cast<size_t>(b.root)];
    if (root < 0) root = activations_.take(state.bytes->of_root[static_cast<size_t>(b.root)]);
    activations_.share(root);
    slot = root;
  }

  void release(std::vector<int>& blocks, int of) {
    if (int& block = blocks[static_cast<size_t>(of)]; block >= 0) activations_.drop(std::exchange(block, -1));
  }

  void run_segment(const Task& t) {
    meter_.recent();
    const ir::StageCode& stage = stage_of(t);
    MicroBatchState& state = state_of(t, t.stage());
    const std::vector<ir::Instr>& code = stage.segment(t.pass()).code;
    const std::vector<i64>& workspaces = state.local->workspaces(t.pass(), state.size);
    const auto scratch = [&](size_t i) {
      return ir::scratch_bytes(stage, code[i], state.pattern, state.position, state.extent.tokens);
    };
    const config::Compression& compression = compiled(t).strategy.compression;
    std::vector<int> ranks;  // by position
    if (compression.encodes_exchanges())
      ranks = compiled(t).code_ranks(t.replica(), t.stage(), place(t, t.stage()).ring);
    const codecs::Rule of_keys = compression.rule(compression.keys);
    const batch::KeyExchange exchange = key_exchange_of(t, of_keys);
    const auto room_of_keys = [&](size_t i) -> i64 {
      if (exchange.rounds.empty()) return 0;
      const RunPlace at = place(t, t.stage());
      const KeyRooms rooms = key_rooms(of_keys, ir::key_bytes(stage, code[i], at.position), exchange, at.ring,
                                       compiled(t).ring_peers(t.replica(), t.stage(), at.position), plans_.cluster());
      return allocated(rooms.values) + allocated(rooms.gradients);
    };
    const auto room = [&](size_t i) {
      return reshard_room(rule_of(compression, code[i]), stage, code[i], state.pattern, state.position,
                          state.extent.tokens, ranks, plans_.cluster());
    };
    bool started = false;
    const auto start = [&](size_t i) {
      started = true;
      for (const int b : code[i].out) {
        const ir::Buffer& buffer = stage.buffers[static_cast<size_t>(b)];
        if (buffer.kind == ir::ValueKind::gradient) {
          const int param = plans_.graph().value(buffer.value).param;
          stage.reduces() ? make_gradient(t, param) : accumulate(t.phase, param);
        } else
          allocate(stage, b, state);
      }
      if (!code[i].op) {
        meter_.take(MemoryClass::workspace, scratch(i));
        return meter_.take(MemoryClass::workspace, room(i));
      }
      if (const i64 head_dim = state.local->rotary_head_dim(t.pass(), i)) need_tables(head_dim, state);
      const i64 keys = room_of_keys(i);
      meter_.take(MemoryClass::workspace, keys);
      meter_.touch(MemoryClass::workspace, workspaces[i]);
      meter_.drop(MemoryClass::workspace, keys);
    };
    // A collective that no later piece waits for ends with its task.
    const auto end = [&](size_t i) {
      const i64 sums = code[i].op ? 0 : scratch(i), encoded = code[i].op ? 0 : room(i);
      const auto drop = [this, &instr = code[i], &state, sums, encoded] {
        meter_.drop(MemoryClass::workspace, sums);
        meter_.drop(MemoryClass::workspace, encoded);
        for (const int b : instr.drop) release(state.slot, b);
        for (const int root : instr.drop_roots) release(state.root, root);
      };
      if (started && t.queue == ir::Queue::collective)
        ends_[&t].push_back(drop);
      else
        drop();
    };
    ir::walk(stage.segment(t.pass()), t.piece(), start, end);
    i64& highest = phase_peaks_[static_cast<size_t>(t.phase)];
    highest = std::max(highest, meter_.recent());
    if (t.forward() && ir::is_last(stage.segment(t.pass()), t.piece())) keep(stage, state);
  }

  // The exchange of the run's keys at the rank's position; empty where they are not encoded.
  batch::KeyExchange key_exchange_of(const Task& t, const codecs::Rule& encoding) const {
    if (encoding.codec == codecs::Codec::none || compiled(t).ring_ranks(t.replica()) == 1) return {};
    const auto& mb = plan_.phases[static_cast<size_t>(t.phase)]
                         .replica[static_cast<size_t>(t.replica())][static_cast<size_t>(t.micro_batch())];
    const std::vector<int> peers = compiled(t).ring_peers(t.replica(), t.stage(), place(t, t.stage()).position);
    return batch::key_exchange(mb, compiled(t).strategy.exchange, layout::host_pattern(peers, plans_.cluster()));
  }

  void keep(const ir::StageCode& stage, MicroBatchState& state) {
    std::vector<int> blocks;
    for (const int b : stage.stash)
      if (const int block = state.slot[static_cast<size_t>(b)]; block >= 0) blocks.push_back(block);
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    for (const int id : blocks) state.kept += activations_.bytes(id);
    most_kept_ = std::max(most_kept_, kept_ += state.kept);
  }

  i64 bytes_of(const RotaryTables& tables) const { return tables.bytes(plans_.graph().precision().state); }

  // Tables of a micro-batch are made once. Where the longest document was not known before, the rank's tables are
  // replaced by longer ones.
  void need_tables(i64 head_dim, MicroBatchState& state) {
    RotaryTables& tables = tables_.by_document ? state.tables : tables_;
    const i64 positions = tables_.by_document ? state.extent.tokens : state.size.longest;
    if (positions <= tables.positions) return;
    const RotaryTables old = std::exchange(tables, {positions, head_dim, tables_.by_document});
    for (int i = 0; i < 2; ++i) meter_.take(MemoryClass::workspace, bytes_of(tables));
    for (int i = 0; i < 2; ++i) meter_.drop(MemoryClass::workspace, bytes_of(old));
  }

  void receive(const Task& t) {
    const int to = target_of(t);
    const ir::StageCode& code = stage_of(t, to);
    allocate(code, t.forward() ? code.act_in : code.grad_in, state_of(t, to));
  }

  static int target_of(const Task& t) { return t.forward() ? t.stage() + 1 : t.stage() - 1; }

  // The sender's tensor goes, unless the backward pass reads it. The rank's next chunk takes it over as it is.
  void sent(const Task& t) {
    if (place(t, t.stage()).position < 0) return;
    const ir::StageCode& code = stage_of(t);
    MicroBatchState& state = state_of(t, t.stage());
    if (const int to = target_of(t); place(t, to).position >= 0) {
      const ir::StageCode& next = stage_of(t, to);
      const int block = state.slot.at(static_cast<size_t>(t.forward() ? code.act_out : code.grad_out));
      check(block >= 0, "{} hands over nothing", t);
      activations_.share(block);
      state_of(t, to).slot[static_cast<size_t>(t.forward() ? next.act_in : next.grad_in)] = block;
    }
    if (t.forward() && std::find(code.stash.begin(), code.stash.end(), code.act_out) == code.stash.end())
      release(state.slot, code.act_out);
  }

  const ir::Program& program_;
  const batch::StepPlan& plan_;
  const Plans& plans_;
  const Holdings& holdings_;
  int units_;
  const std::vector<int>& tasks_;
  bool worst_;
  std::vector<Moment> order_;
  bool random_;
  i64 state_, compute_;
  MemoryMeter meter_;
  SharedBlocks activations_, parameters_, gradients_;
  LocalStages& stages_;
  std::vector<int> users_;  // [phase][unit][gradient]
  std::map<UnitUse, int> users_of_runs_;
  std::map<std::tuple<int, int, bool>, int> runs_;  // to come, by phase, stage, and whether they use gradients
  std::vector<bool> accumulated_;                   // [phase][parameter]: its group has a block
  std::map<StateKey, int> workers_;
  std::map<UnitUse, std::map<int, int>> working_,
      gradient_blocks_;  // parameter (gradients: the group's first) -> block
  std::map<StateKey, MicroBatchState> states_;
  std::vector<i64> phase_peaks_;
  RotaryTables tables_;
  i64 kept_ = 0, most_kept_ = 0;
  std::set<UnitUse> read_copies_;  // that the rank's runs read
  i64 unread_ = 0;
  int last_unread_ = -1;
  std::map<const Task*, std::vector<std::function<void()>>> ends_;  // what is done at the end of a task
};

// The highest peak of the worst orders. by_phase: the highest total while a phase computes.
struct WorstPeak {
  MemoryPeak peak{};
  std::vector<i64> by_phase;
};

WorstPeak worst_peak(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                     const Holdings& holdings, const Arrivals& arrivals, LocalStages& stages) {
  WorstPeak worst{.by_phase = std::vector<i64>(plan.phases.size())};
  const int phases = static_cast<int>(plan.phases.size());
  for (int phase = std::min(1, phases - 1); phase < phases; ++phase) {
    Replay replay(program, plan, plans, holdings, arrivals, phase, stages);
    if (const MemoryPeak peak = replay.run(); peak.total > worst.peak.total) worst.peak = peak;
    std::ranges::transform(worst.by_phase, replay.phase_peaks(), worst.by_phase.begin(),
                           [](i64 a, i64 b) { return std::max(a, b); });
  }
  return worst;
}

std::optional<Arrivals> arrivals_at(const ir::Program& program, ExecutionOrder order) {
  if (order == ExecutionOrder::worst) return Arrivals(program);
  return {};
}

MemoryPeak peak_at(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                   const Holdings& holdings, const std::optional<Arrivals>& arrivals, LocalStages& stages) {
  return arrivals ? worst_peak(program, plan, plans, holdings, *arrivals, stages).peak
                  : Replay(program, plan, plans, holdings, stages).run();
}

}  // namespace

const char* name_of(MemoryClass what) {
  constexpr std::array<const char*, kMemoryClasses> kNames = {
      "master weights",   "moments",   "home gradients", "error feedback", "compute-precision weights",
      "borrowed weights", "gradients", "activations",    "workspace"};
  return kNames[static_cast<size_t>(what)];
}

MemoryClass MemoryPeak::largest() const {
  return static_cast<MemoryClass>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

RotaryTables rotary_tables(const ir::Graph& graph, i64 longest_document) {
  for (const ir::Call& call : graph.calls())
    if (const i64 head_dim = call.op->rotary_head_dim(); head_dim > 0) {
      const bool by_document = call.op->rotates_by_document();
      return {by_document ? 0 : longest_document, head_dim, by_document};
    }
  return {};
}

MemoryPeak predict_memory(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                          const Holdings& holdings, ExecutionOrder order) {
  LocalStages stages;
  return peak_at(program, plan, plans, holdings, arrivals_at(program, order), stages);
}

std::vector<MemoryPeak> memory_by_task(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                       const Holdings& holdings) {
  LocalStages stages;
  return Replay(program, plan, plans, holdings, stages).by_task();
}

std::vector<MemoryPeak> predict_all(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                    ExecutionOrder order) {
  const BoxesByRank boxes = boxes_by_rank(plans);
  const std::optional<Arrivals> arrivals = arrivals_at(program, order);
  LocalStages stages;
  std::vector<MemoryPeak> peaks;
  for (const int first : EquivalenceClasses(program, plan, plans, boxes, order == ExecutionOrder::worst).first_like()) {
    const int rank = static_cast<int>(peaks.size());
    peaks.push_back(first < rank ? peaks[static_cast<size_t>(first)]
                                 : peak_at(program, plan, plans, Holdings(plans, boxes, rank), arrivals, stages));
  }
  return peaks;
}

struct BudgetCheck::Common {
  BoxesByRank boxes;
  LocalStages stages{};
  std::map<int, Holdings> holdings{};
};

BudgetCheck::BudgetCheck(const batch::StepPlan& plan, const Plans& plans, i64 budget)
    : plan_(plan), plans_(plans), budget_(budget), common_(std::make_unique<Common>(Common{boxes_by_rank(plans)})) {}

BudgetCheck::~BudgetCheck() = default;

bool BudgetCheck::may_fit(const ir::Program& program) {
  return peak_of(program, Arrivals(program), suspect_).total <= budget_;
}

std::optional<MemoryPeak> BudgetCheck::peak_within(const ir::Program& program) {
  const Arrivals arrivals(program);
  MemoryPeak highest = peak_of(program, arrivals, suspect_);
  if (highest.total > budget_) return std::nullopt;
  const std::vector<int> first_like = EquivalenceClasses(program, plan_, plans_, common_->boxes, true).first_like();
  for (int rank = 0; rank < static_cast<int>(first_like.size()); ++rank) {
    if (rank == suspect_ || first_like[static_cast<size_t>(rank)] != rank) continue;
    const MemoryPeak peak = peak_of(program, arrivals, rank);
    if (peak.total > budget_) {
      suspect_ = rank;
      return std::nullopt;
    }
    if (peak.total > highest.total) highest = peak;
  }
  return highest;
}

MemoryPeak BudgetCheck::peak_of(const ir::Program& program, const Arrivals& arrivals, int rank) {
  const Holdings& holdings = common_->holdings.try_emplace(rank, plans_, common_->boxes, rank).first->second;
  WorstPeak worst = worst_peak(program, plan_, plans_, holdings, arrivals, common_->stages);
  phase_peaks_ = std::move(worst.by_phase);
  return worst.peak;
}

// In the worst order a rank has all parameters that the next phase prefetches while a phase computes, so each that is
// not prefetched makes the phase's peak so much lower. Without prefetch other things change, too.
int BudgetCheck::fewer_units(int units) const {
  const Holdings& holdings = common_->holdings.at(suspect_);
  const i64 element = size_of(plans_.graph().precision().compute);
  const auto bytes = [&](size_t phase, int unit) {
    i64 sum = 0;
    for (const WorkingGroup& group :
         holdings.working(plan_.phases[phase].strategy, plan_.phases[phase - 1].strategy, unit))
      if (group.source == WorkingGroup::Source::own) sum += allocated(group.elements * element);
    return sum;
  };
  std::vector<i64> peaks = phase_peaks_;
  for (units = std::min(units, static_cast<int>(plans_.units().size())); units > 1;) {
    const int all = std::exchange(units, units / 2);
    for (size_t phase = 1; phase < peaks.size(); ++phase)
      for (int unit = units; unit < all; ++unit) peaks[phase - 1] -= bytes(phase, unit);
    if (std::ranges::max(peaks) <= budget_) return units;
  }
  return 0;
}

std::pair<int, MemoryPeak> rank_with_highest_peak(const ir::Program& program, const batch::StepPlan& plan,
                                                  const Plans& plans) {
  const std::vector<MemoryPeak> peaks = predict_all(program, plan, plans, ExecutionOrder::worst);
  const auto highest = std::ranges::max_element(peaks, {}, &MemoryPeak::total);
  return {static_cast<int>(highest - peaks.begin()), *highest};
}

std::vector<i64> checkpoint_copies(const Plans& plans) {
  constexpr i64 kParts = 3;  // master, m, v
  std::vector<i64> bytes(static_cast<size_t>(plans.cluster().ranks()));
  for (const layout::ShardMap& owners : plans.owners())
    for (const layout::Shard& shard : owners.shards)
      bytes[static_cast<size_t>(shard.rank)] +=
          kParts * allocated(shard.box.elements() * size_of(plans.graph().precision().state));
  for (size_t rank = 0; rank < bytes.size(); ++rank)
    for (const Residual& residual : plans.residuals()[rank])
      bytes[rank] += allocated(residual.box.elements() * size_of(plans.graph().precision().state));
  return bytes;
}

ir::Program assemble_within(const batch::StepPlan& plan, const Plans& plans, bool prefetch,
                            const std::function<bool(const ir::Program&)>& fits, std::optional<ir::Program> first) {
  int units = prefetch ? static_cast<int>(plans.units().size()) : 0;
  if (first) {
    if (fits(*first) || units == 0) return *std::move(first);
    units /= 2;
  }
  StepAssembler assembler(plan, plans);
  const bool train = ir::is_differentiated(plans.graph());
  for (;; units /= 2) {
    ir::Program program = assembler.program({.prefetch_units = units, .train = train});
    if (fits(program) || units == 0) return program;
  }
}

ir::Program assemble_first(const batch::StepPlan& plan, const Plans& plans, bool prefetch) {
  return assemble_within(plan, plans, prefetch, [](const ir::Program&) { return true; });
}

std::string to_string(const MemoryPeak& peak) {
  std::vector<size_t> order(kMemoryClasses);
  for (size_t c = 0; c < order.size(); ++c) order[c] = c;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return peak.bytes[a] > peak.bytes[b]; });
  std::string text = format_bytes(Bytes{peak.total}) + ":";
  for (const size_t c : order)
    if (peak.bytes[c] > 0)
      text += fmt::format("{} {} {}", text.back() == ':' ? "" : ",", name_of(static_cast<MemoryClass>(c)),
                          format_bytes(Bytes{peak.bytes[c]}));
  return text;
}

}  // namespace switchyard::compiler
