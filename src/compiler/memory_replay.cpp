#include "compiler/memory_replay.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/allocation.hpp"
#include "base/errors.hpp"
#include "compiler/memory_meter.hpp"
#include "compiler/order.hpp"
#include "compiler/ring_keys.hpp"
#include "compiler/step_assembler.hpp"
#include "compiler/wire.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

// Tensors of a micro-batch on the rank.
struct MicroBatchState {
  const ir::StageCode* stage = nullptr;
  const LocalStage* local = nullptr;
  const std::vector<i64>* bytes = nullptr;  // sizes of blocks
  StageBlocks* blocks = nullptr;
  const StageBlocks::Held* held = nullptr;
  std::map<int, int> shared;  // numbers of its blocks among the rank's shared ones
  int position = 0;
  size_t pattern = 0;  // the replica's pattern of hosts
  ir::Extent extent;
  ir::CallSize size;
  i64 feeds = 0, kept = 0;
  const std::vector<i64>* workspaces = nullptr;  // workspaces of the pass that runs
  struct Room {
    Pass pass;
    size_t instr;
    i64 bytes;
  };
  std::vector<Room> rooms;  // one for each collective that has begun
  batch::KeyExchange keys;  // with the other ring ranks; empty where they are not encoded
  RotaryTables tables;      // tables of its own
};

class Replay {
 public:
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
        shared_(meter_, MemoryClass::activations),
        parameters_(meter_, MemoryClass::parameters),
        gradients_(meter_, MemoryClass::gradients),
        stages_(stages),
        users_(plan.phases.size() * static_cast<size_t>(units_) * 2),
        accumulated_(plan.phases.size() * plans.home().size()),
        phase_peaks_(plan.phases.size()),
        tables_(rotary_tables(plans.graph(), plans.longest_document())) {
    for (const ir::Value& value : plans.graph().values()) params_.push_back(value.param);
  }

  ReplayedMemory run() {
    replay();
    MemoryPeak peak = meter_.peak();
    peak.kept = most_kept_;
    return {.peak = peak, .by_phase = std::move(phase_peaks_)};
  }

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
      if (shares_uses(task(id))) {
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
    const std::vector<int> waiting = runs_that_wait();
    make_room(kStart);
    post(kStart);
    for (size_t at = 0; at < order_.size(); ++at) {
      const auto [id, begins, ends] = order_[at];
      meter_.at(id);
      if (waiting[at] >= 0) state_of(task(waiting[at]), task(waiting[at]).stage());
      if (begins) {
        for (const UnitUse& use : uses_until_start(task(id), holdings_.rank(), program_)) used(use);
        perform(task(id));
        post(id);
        for (auto [it, end] = handed_over.equal_range(id); it != end; ++it)
          state_of(task(it->second), target_of(task(it->second)));
      }
      if (!ends) continue;
      if (runs_apart(task(id))) {
        MicroBatchState& state = state_of(task(id), task(id).stage());
        follow(state.blocks->end_apart(*state.held, task(id).pass(), task(id).piece()), state, &task(id));
      }
      if (shares_uses(task(id))) {
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

  // At each place of the order, the next run, if it may have begun and waits for parameters that the switching queue
  // brings with this task or behind it; else, and in the expected order, -1. Its feeds exist before these parameters
  // do.
  std::vector<int> runs_that_wait() const {
    std::vector<int> waiting(order_.size(), -1);
    if (!worst_) return waiting;
    int next = -1, awaited = -1;  // run, the last task of the switching queue that it waits for
    for (size_t at = order_.size(); at-- > 0;) {
      const int id = order_[at].task;
      if (task(id).queue == ir::Queue::switching && id <= awaited) waiting[at] = next;
      if (task(id).queue != ir::Queue::compute) continue;
      next = id;
      awaited = -1;
      if (task(id).kind() == TaskKind::run)
        for (const ir::Wait& wait : task(id).after)
          if (task(wait.task).queue == ir::Queue::switching) awaited = std::max(awaited, wait.task);
    }
    return waiting;
  }

  // Runs of a stage that use the same units count as one user of each.
  bool shares_uses(const Task& t) const { return t.kind() == TaskKind::run && !stage_of(t).reduces(); }
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
    std::map<int, size_t> places;  // position of each task in the rank's order
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

  // A copy that no run of the rank reads is allocated for the whole gather, whose end is not known: one at a time,
  // until the rank waits for what is gathered later.
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
    MicroBatchState& state = it->second;
    if (!fresh) return state;
    const auto& mb = plan_.phases[static_cast<size_t>(t.phase)]
                         .replica[static_cast<size_t>(t.replica())][static_cast<size_t>(t.micro_batch())];
    const auto [ring, position] = place(t, stage);
    state.position = position;
    state.pattern =
        ir::pattern_of(stage_of(t, stage), compiled(t).code_ranks(t.replica(), stage, ring), plans_.cluster());
    state.stage = &stage_of(t, stage);
    state.local = &stages_.at(*state.stage, state.position);
    state.blocks = &stages_.blocks(*state.stage);
    state.held = &state.blocks->none();
    const i64 T = mb.T[static_cast<size_t>(ring)];
    const std::span<const batch::Piece> shard = mb.shard[static_cast<size_t>(ring)];
    state.extent = {T, batch::squared_lengths(shard)};
    state.bytes = &state.local->known_block_bytes(state.extent);
    state.keys = key_exchange_of(t, stage, mb);
    const i64 rows = key_rows(compiled(t), t.replica(), stage, place(t, stage), mb, plans_.cluster());
    state.size = {.tokens = T,
                  .longest = batch::longest(shard),
                  .seen_keys = rows,
                  .in_steps = rows > 0 && compiled(t).strategy.exchange == KeyPassing::ring,
                  .sequences = plans_.how().on_devices ? static_cast<i64>(shard.size()) + 1 : 0,
                  .element_kernels = plans_.how().element_kernels,
                  .in_ring = compiled(t).ring_ranks(t.replica()) > 1};
    const i64 weights = allocated(T * size_of(DType::f64));
    const i64 ends = compute_ == size_of(DType::bf16) ? 2 * state.size.sequences * size_of(DType::i32) : 0;
    state.feeds = (random_ ? 4 : 3) * allocated(T * size_of(DType::i64)) + allocated(T * state_) + allocated(ends);
    meter_.take(MemoryClass::workspace, state.feeds);
    if (state_ != size_of(DType::f64)) meter_.touch(MemoryClass::workspace, weights);  // made in fp64
    return state;
  }

  void end_state(const StateKey& key) {
    const auto it = states_.find(key);
    if (it == states_.end()) return;
    MicroBatchState& state = it->second;
    follow(state.blocks->drop_all(*state.held), state);
    meter_.drop(MemoryClass::workspace, state.feeds);
    for (int i = 0; i < 2; ++i) meter_.drop(MemoryClass::workspace, bytes_of(state.tables));
    kept_ -= state.kept;
    states_.erase(it);
  }

  // A collective on its own queue.
  static bool runs_apart(const Task& t) { return t.kind() == TaskKind::run && t.queue == ir::Queue::collective; }

  // run: the task, where the change is that of a run.
  void follow(const StageBlocks::Change& change, MicroBatchState& state, const Task* run = nullptr) {
    const std::vector<i64>& bytes = *state.bytes;
    for (const auto& [kind, index] : change.steps) {
      const auto i = static_cast<size_t>(index);
      switch (kind) {
        case BlockStep::Kind::take:
          meter_.take(MemoryClass::activations, bytes[i]);
          break;
        case BlockStep::Kind::drop:
          meter_.drop(MemoryClass::activations, bytes[i]);
          break;
        case BlockStep::Kind::drop_shared:
          shared_.drop(state.shared.extract(index).mapped());
          break;
        case BlockStep::Kind::tables:
          need_tables(index, state);
          break;
        case BlockStep::Kind::call:
          call(*run, i, state);
          break;
        case BlockStep::Kind::begin:
          begin(*run, i, state);
          break;
        case BlockStep::Kind::end:
          end(*run, i, state);
          break;
        case BlockStep::Kind::gradient:
          if (state.stage->reduces())
            make_gradient(*run, params_[i]);
          else
            accumulate(run->phase, params_[i]);
          break;
      }
    }
    state.held = change.held;
  }

  void call(const Task& run, size_t instr, MicroBatchState& state) {
    const i64 keys = room_of_keys(run, instr, state);
    meter_.take(MemoryClass::workspace, keys);
    meter_.touch(MemoryClass::workspace, (*state.workspaces)[instr]);
    meter_.drop(MemoryClass::workspace, keys);
  }

  // A collective, which makes sums for others, and encodes.
  void begin(const Task& run, size_t instr, MicroBatchState& state) {
    const i64 sums = ir::scratch_bytes(*state.stage, state.stage->segment(run.pass()).code[instr], state.pattern,
                                       state.position, state.extent.tokens);
    const i64 room = allocated(sums) + allocated(encoding_room(run, instr, state));
    if (room == 0) return;
    state.rooms.push_back({run.pass(), instr, room});
    meter_.take(MemoryClass::workspace, room);
  }
  void end(const Task& run, size_t instr, MicroBatchState& state) {
    const auto room = std::ranges::find_if(state.rooms, [&](const MicroBatchState::Room& known) {
      return known.pass == run.pass() && known.instr == instr;
    });
    if (room == state.rooms.end()) return;
    meter_.drop(MemoryClass::workspace, room->bytes);
    state.rooms.erase(room);
  }

  i64 encoding_room(const Task& run, size_t instr, const MicroBatchState& state) const {
    const config::Compression& compression = compiled(run).strategy.compression;
    if (!compression.encodes_exchanges()) return 0;
    const ir::Instr& reshard = state.stage->segment(run.pass()).code[instr];
    const std::vector<int> ranks =
        compiled(run).code_ranks(run.replica(), run.stage(), place(run, run.stage()).ring);  // by position
    return reshard_room(rule_of(compression, reshard), *state.stage, reshard, state.pattern, state.position,
                        state.extent.tokens, ranks, plans_.cluster());
  }

  i64 room_of_keys(const Task& run, size_t instr, const MicroBatchState& state) const {
    if (state.keys.rounds.empty()) return 0;
    const ir::Instr& attention = state.stage->segment(run.pass()).code[instr];
    const RunPlace at = place(run, run.stage());
    const KeyRooms rooms =
        key_rooms(of_keys(run), ir::key_bytes(*state.stage, attention, at.position), state.keys, at.ring,
                  compiled(run).ring_peers(run.replica(), run.stage(), at.position), plans_.cluster());
    return allocated(rooms.values) + allocated(rooms.gradients);
  }

  codecs::Rule of_keys(const Task& t) const {
    const config::Compression& compression = compiled(t).strategy.compression;
    return compression.rule(compression.keys);
  }

  // The exchange of the run's keys at the rank's position; empty where they are not encoded.
  batch::KeyExchange key_exchange_of(const Task& t, int stage, const batch::MicroBatch& mb) const {
    if (of_keys(t).codec == codecs::Codec::none || compiled(t).ring_ranks(t.replica()) == 1) return {};
    const std::vector<int> peers = compiled(t).ring_peers(t.replica(), stage, place(t, stage).position);
    return batch::key_exchange(mb, compiled(t).strategy.exchange, layout::host_pattern(peers, plans_.cluster()));
  }

  void run_segment(const Task& t) {
    meter_.recent();
    MicroBatchState& state = state_of(t, t.stage());
    state.workspaces = &state.local->workspaces(t.pass(), state.size);
    follow(state.blocks->run(*state.held, t.pass(), t.piece(), runs_apart(t)), state, &t);
    i64& highest = phase_peaks_[static_cast<size_t>(t.phase)];
    highest = std::max(highest, meter_.recent());
    if (t.forward() && ir::is_last(state.stage->segment(t.pass()), t.piece())) keep(state);
  }

  void keep(MicroBatchState& state) {
    for (const int block : state.blocks->kept(*state.held)) {
      const auto shared = state.shared.find(block);
      state.kept +=
          shared == state.shared.end() ? (*state.bytes)[static_cast<size_t>(block)] : shared_.bytes(shared->second);
    }
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
    MicroBatchState& state = state_of(t, to);
    follow(state.blocks->receive(*state.held, t.forward() ? code.act_in : code.grad_in), state);
  }

  static int target_of(const Task& t) { return t.forward() ? t.stage() + 1 : t.stage() - 1; }

  // The sender's tensor goes, unless the backward pass reads it. The rank's next chunk takes it over as it is.
  void sent(const Task& t) {
    if (place(t, t.stage()).position < 0) return;
    const ir::StageCode& code = stage_of(t);
    MicroBatchState& state = state_of(t, t.stage());
    if (const int to = target_of(t); place(t, to).position >= 0) hand_over(t, state, state_of(t, to), stage_of(t, to));
    if (t.forward() && std::find(code.stash.begin(), code.stash.end(), code.act_out) == code.stash.end())
      follow(state.blocks->release(*state.held, code.act_out), state);
  }
  void hand_over(const Task& t, MicroBatchState& from, MicroBatchState& to, const ir::StageCode& next) {
    const int out = t.forward() ? stage_of(t).act_out : stage_of(t).grad_out;
    const int in = t.forward() ? next.act_in : next.grad_in;
    const int block = from.blocks->block_of(*from.held, out);
    check(block >= 0, "{} hands over nothing", t);
    const auto [it, fresh] = from.shared.try_emplace(block, -1);
    if (fresh) it->second = shared_.adopt((*from.bytes)[static_cast<size_t>(block)]);
    shared_.share(to.shared[in] = it->second);
    follow(from.blocks->hand_over(*from.held, out), from);
    follow(to.blocks->take_over(*to.held, in), to);
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
  SharedBlocks shared_, parameters_, gradients_;  // shared: activations, by several chunks
  LocalStages& stages_;
  std::vector<int> users_;  // [phase][unit][gradient]
  std::map<UnitUse, int> users_of_runs_;
  std::map<std::tuple<int, int, bool>, int> runs_;  // to come, by phase, stage, and whether they use gradients
  std::vector<int> params_;                         // parameter of each value of the graph; -1: none
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
};

}  // namespace

ReplayedMemory replay_memory(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                             const Holdings& holdings, std::vector<Moment> order, bool worst, LocalStages& stages) {
  return Replay(program, plan, plans, holdings, std::move(order), worst, stages).run();
}

std::vector<MemoryPeak> replay_by_task(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                       const Holdings& holdings, std::vector<Moment> order, LocalStages& stages) {
  return Replay(program, plan, plans, holdings, std::move(order), false, stages).by_task();
}

}  // namespace switchyard::compiler
