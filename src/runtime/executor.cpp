#include "runtime/executor.hpp"

#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "comm/collectives.hpp"
#include "comm/protocol.hpp"
#include "compiler/documents_read.hpp"
#include "compiler/memory.hpp"
#include "compiler/wire.hpp"
#include "ir/operators/attention.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/threads.hpp"
#include "runtime/channels.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensors.hpp"
#include "runtime/transfer.hpp"

namespace switchyard::runtime {
namespace {

using ir::Task;
using ir::TaskKind;

}  // namespace

struct Executor::StageRunner {
  StageRunner(const compiler::Plans& plans, const compiler::CompiledStrategy& s, const Task& task, int at,
              const comm::Fabric& fabric, at::Device device)
      : stage(s.groups[static_cast<size_t>(task.group())].stages[static_cast<size_t>(at)]),
        ring(s.place_of(task.replica(), at, fabric.rank()).ring),
        position(s.place_of(task.replica(), at, fabric.rank()).position),
        ranks(s.code_ranks(task.replica(), at, ring)),
        pattern(ir::pattern_of(stage, ranks, plans.cluster())),
        reads_tokens(compiler::reads_tokens(stage, plans.graph())),
        runner(plans.graph(), stage, position, plans.graph().precision().state, device) {
    check(position >= 0, "rank {} is not in stage {} of replica {}", fabric.rank(), at, task.replica());
    peers = s.ring_peers(task.replica(), at, position);
    served = served_stretches(stage, pattern, ranks, position, fabric);
  }
  const ir::StageCode& stage;
  int ring, position;
  std::vector<int> ranks, peers;  // by position; by ring rank
  size_t pattern;                 // number among the stage's patterns of hosts
  bool reads_tokens;
  SegmentRunner runner;
  ServedStretches served;
};

// One step of one rank: its flags, the micro-batches in flight, and how many tasks still need each working parameters
// or accumulator.
struct Executor::Step {
  Step(Executor& executor, const ir::Program& program_in, const StepInput& input_in)
      : e(executor),
        plans(input_in.plans ? *input_in.plans : executor.plans_),
        program(program_in),
        input(input_in),
        tasks(program.of_rank[static_cast<size_t>(e.rank_)]),
        rooms(compiler::rooms_of(program, e.rank_, *input.plan, plans)),
        signals(flag_count(), executor.options_.device) {
    {
      const kernels::MemoryScope outside(nullptr);  // this memory isn't counted for any strategy
      loss_sums = zeros({1 + (labels().sources > 1 ? labels().sources : 0)}, DType::f64, e.options_.device);
    }
    for (const auto& [queue, bytes] : compiler::encoding_rooms(program, e.rank_, plans))
      encoding_rooms[queue] = empty({bytes}, DType::u8, at::kCPU);
    for (const int id : tasks) {
      for (const compiler::UnitUse& use : uses_of(id)) ++users[use];
      for (const compiler::UnitUse& use : uses_until_start(id)) ++users[use];
      for (const compiler::StateKey& state : compiler::states_of(program.tasks[static_cast<size_t>(id)], e.rank_))
        ++workers[state];
    }
  }

  // Flags: one a task, then one for each unit that a run releases.
  size_t flag_count() {
    size_t count = program.tasks.size();
    for (const int id : tasks) {
      const Task& task = program.tasks[static_cast<size_t>(id)];
      if (task.kind() != TaskKind::run || task.forward()) continue;
      const ir::Segment& segment = runner_of(task).stage.segment(task.pass());
      const ir::PieceRange range = ir::range_of(segment, task.piece());
      for (const ir::UnitEvent& release : segment.releases)
        if (range.has(release.instr)) release_flag[{id, release.unit}] = count++;
    }
    return count;
  }

  int strategy_of(int phase) const { return phase < 0 ? -1 : input.plan->phases[static_cast<size_t>(phase)].strategy; }
  PhaseKey key(int phase) const { return {strategy_of(phase), phase}; }
  // The key of the copies and gradients that the task's runs share.
  RunKey run_key(const Task& task) const {
    const int strategy = strategy_of(task.phase);
    const ir::StageCode& code = plans.strategies()[static_cast<size_t>(strategy)]
                                    .groups[static_cast<size_t>(task.group())]
                                    .stages[static_cast<size_t>(task.stage())];
    return {.phase = key(task.phase),
            .gathers = code.gathers(),
            .reduces = code.reduces(),
            .copy = compiler::use_of_run(task, code, -1, false),
            .kept = compiler::use_of_run(task, code, code.kept_unit, false),
            .gradients = compiler::use_of_run(task, code, -1, true)};
  }
  StageRunner& runner_of(const Task& task) { return runner_of(task, task.stage()); }
  StageRunner& runner_of(const Task& task, int stage) {
    return e.stage_runner(plans, strategy_of(task.phase), task, stage);
  }

  std::vector<compiler::UnitUse> uses_of(int id) const {
    return compiler::unit_uses(program.tasks[static_cast<size_t>(id)], e.rank_, *input.plan, plans);
  }

  std::vector<compiler::UnitUse> uses_until_start(int id) const {
    return compiler::uses_until_start(program.tasks[static_cast<size_t>(id)], e.rank_, program);
  }

  // Called by the thread of a task that is done with these uses: the last one frees their memory.
  void used(const std::vector<compiler::UnitUse>& uses) {
    for (const compiler::UnitUse& use : uses) {
      e.store_.working.record_use(use);
      {
        const std::lock_guard lock(mutex);
        if (--users.at(use) > 0) continue;
      }
      e.store_.working.drop(use);
    }
  }

  // Memory for copies that are gathered when the compute task is done (kStart: from the start).
  void make_room(int after) {
    for (auto [it, end] = rooms.equal_range(after); it != end; ++it) {
      const Task& gather = program.tasks[static_cast<size_t>(it->second)];
      for (const int param : compiler::params_of(gather, *input.plan, plans))
        e.store_.working.run_copy(run_key(gather), param);
    }
  }

  void finished(int id) {
    used(uses_of(id));
    make_room(id);
    for (const compiler::StateKey& state : compiler::states_of(program.tasks[static_cast<size_t>(id)], e.rank_)) {
      const std::lock_guard lock(mutex);
      if (--workers.at(state) == 0) states.erase(state);
    }
    signals.set(static_cast<size_t>(id));
  }

  bool mine(int id) const {
    const auto& ranks = program.tasks[static_cast<size_t>(id)].ranks;
    return std::find(ranks.begin(), ranks.end(), e.rank_) != ranks.end();
  }

  // Waits of the whole task; those for one unit wait for its flag. A run's waits for units come later, at its hooks.
  void await(const Task& task) {
    for (const ir::Wait& wait : task.after) {
      if (!mine(wait.task) || (task.kind() == TaskKind::run && wait.unit >= 0)) continue;
      const auto release = release_flag.find({wait.task, wait.unit});
      signals.wait(release != release_flag.end() ? release->second : static_cast<size_t>(wait.task));
    }
  }

  void execute(int id) {
    if (signals.failed()) return;
    const Task& task = program.tasks[static_cast<size_t>(id)];
    guard([&] {
      TaskTimes of_task(id, task, e.rank_, e.options_.device);
      await(task);
      used(uses_until_start(id));
      of_task.start();
      const double before = input.probe.clock();
      perform_within_memory(id, task, of_task);
      if (input.probe.computed && task.kind() != TaskKind::run && !ir::is_transfer(task.kind()))
        keep_computed({.task = id, .seconds = input.probe.clock() - before});
      of_task.end();
      keep(std::move(of_task));
      finished(id);
    });
  }

  // An error in a queue ends the step on all ranks. The fabric then stops other queues, whose errors may arrive
  // first.
  template <class Work>
  void guard(const Work& work) {
    try {
      work();
    } catch (const Cancelled&) {
    } catch (const std::exception& error) {
      e.fabric_.abort(error.what());
      signals.fail(std::current_exception(), comm::ended_the_job(e.fabric_, error));
    }
  }

  void keep(TaskTimes&& of_task) {
    const std::lock_guard lock(mutex);
    times.push_back(std::move(of_task));
  }

  void keep_computed(const ir::ComputedTime& time) {
    const std::lock_guard lock(mutex);
    result.computed.push_back(time);
  }

  void perform_within_memory(int id, const Task& task, TaskTimes& of_task) {
    try {
      perform(id, task, of_task);
    } catch (const c10::OutOfMemoryError& error) {
      kernels::out_of_device_memory(e.rank_, ir::name_of(task), error);
    }
  }

  void perform(int id, const Task& task, TaskTimes& of_task) {
    switch (task.kind()) {
      case TaskKind::allocate:
        return e.store_.working.allocate(key(task.phase), key(task.phase - 1), task.unit());
      case TaskKind::move:
        return move(id, task);
      case TaskKind::run:
        return run(id, task, of_task);
      case TaskKind::send:
        return send(id, task);
      case TaskKind::zero_fill:
        return zero(task);
      case TaskKind::gather:
        return gather(id, task);
      case TaskKind::reduce_scatter:
        return reduce_scatter(id, task);
      case TaskKind::reduce:
        return reduce(id, task);
      case TaskKind::broadcast:
        return broadcast(id, task);
      case TaskKind::norm:
        return norm(id, task, of_task);
      case TaskKind::update:
        if (result.finite) e.store_.home.update(task.unit(), update);
        return;
    }
  }

  // A transfer that encodes messages in the memory of the task's queue, which runs one task at a time. The task's rule
  // says how they are encoded.
  Transfer transfer_of(const Task& task) const {
    const auto room = encoding_rooms.find(compiler::queue_of(task, e.rank_));
    return Transfer(room == encoding_rooms.end() ? at::Tensor() : room->second);
  }
  void send(Transfer& transfer, const Task& task, const layout::Msg& m, const at::Tensor& view) const {
    const codecs::Codec codec = compiler::codec_of(task, m, dtype_of(view), plans.cluster());
    const bool keeps = task.encoding.feedback && codec != codecs::Codec::none;
    transfer.send(m.dst, view, codec, keeps ? e.store_.residuals.view(m.tensor, m.box) : at::Tensor());
  }
  void receive(Transfer& transfer, const Task& task, const layout::Msg& m, const at::Tensor& view, bool add) const {
    transfer.receive(m.src, view, add, compiler::codec_of(task, m, dtype_of(view), plans.cluster()));
  }

  // Numbers rise within a queue, and all ranks give a task the same.
  i64 number_of(int id) const { return (e.steps_ << 24) + id; }

  // The collectives that the fabric serves in place of a transfer's messages, by parameter. All messages of such a
  // parameter are left out.
  const compiler::UnitCollectives& served(const Task& task) const { return e.served_.of(task, *input.plan, plans); }

  // Adds the collectives that run with the task. in, out: where this rank's pieces are read and written, given as
  // messages' boxes are.
  template <class In, class Out>
  void add_collectives(Transfer& transfer, const Task& task, bool add, const In& in, const Out& out) const {
    const compiler::UnitCollectives& collectives = served(task);
    if (collectives.round != task.round()) return;
    for (const auto& [param, groups] : collectives.of_param)
      for (const layout::GroupCollective& group : groups) {
        const auto place = std::ranges::find(group.ranks, e.rank_);
        if (place == group.ranks.end()) continue;
        std::vector<at::Tensor> pieces, mine;
        const bool gathers = group.call == GroupCall::all_gather;
        for (const layout::Box& box : group.pieces) {
          const layout::Msg m{e.rank_, e.rank_, param, box};
          pieces.push_back(gathers ? out(m) : in(m));
          if (group.pieces.size() > 1 && &box != &group.pieces[static_cast<size_t>(place - group.ranks.begin())])
            continue;
          mine.push_back(gathers ? in(m) : out(m));
        }
        transfer.collective(group.call, group.ranks, gathers ? mine : pieces, gathers ? pieces : mine, add);
      }
  }

  void transact(Transfer& transfer, int id, const Task& task) {
    transfer.run(e.fabric_, channel_of(task), ir::name_of(task), number_of(id));
    if (input.probe.computed && task.encoding.codec != codecs::Codec::none)
      keep_computed({.task = id, .seconds = transfer.coding_seconds()});
  }

  void move(int id, const Task& task) {
    Transfer transfer = transfer_of(task);
    const PhaseKey now = key(task.phase), before = key(task.phase - 1);
    const auto source = [&](const layout::Msg& m) { return e.store_.working.source(now, before, m.tensor, m.box); };
    const auto target = [&](const layout::Msg& m) {
      return view_of(e.store_.working.param(now, m.tensor), *e.store_.holdings.stored(now.strategy, m.tensor), m.box);
    };
    add_collectives(transfer, task, false, source, target);
    const auto& by_calls = served(task).of_param;
    for (const layout::Msg& m : task.messages) {
      if (m.src == m.dst || by_calls.contains(m.tensor)) continue;
      if (m.src == e.rank_) send(transfer, task, m, source(m));
      if (m.dst == e.rank_) receive(transfer, task, m, target(m), false);
    }
    transact(transfer, id, task);
  }

  // Brings the shards that the ranks store together, in a copy on each rank.
  void gather(int id, const Task& task) {
    Transfer transfer = transfer_of(task);
    const RunKey run = run_key(task);
    const auto copy = [&](const layout::Msg& m) {
      return view_of(e.store_.working.run_copy(run, m.tensor), *e.store_.holdings.used(run.phase.strategy, m.tensor),
                     m.box);
    };
    const auto source = [&](const layout::Msg& m) { return e.store_.working.run_source(run, m.tensor, m.box); };
    add_collectives(transfer, task, false, source, copy);
    const auto& by_calls = served(task).of_param;
    for (const layout::Msg& m : task.messages) {
      if (by_calls.contains(m.tensor)) continue;
      if (m.src == e.rank_ && m.dst == e.rank_)
        transfer.local(copy(m), source(m), false);
      else if (m.src == e.rank_)
        send(transfer, task, m, source(m));
      else if (m.dst == e.rank_)
        receive(transfer, task, m, copy(m), false);
    }
    transact(transfer, id, task);
  }

  const batch::MicroBatch& micro_batch_of(const Task& task) const {
    return input.plan->phases[static_cast<size_t>(task.phase)]
        .replica[static_cast<size_t>(task.replica())][static_cast<size_t>(task.micro_batch())];
  }

  // A stage's state is made by whoever needs it first: its run, or the send that fills its input. Feeds take a while,
  // in which only who needs the same ones waits.
  MicroBatchState& state_of(const Task& task, int at, const StageRunner& stage) {
    std::unique_lock lock(mutex);
    OnceMade& of_stage =
        states[{.phase = task.phase, .replica = task.replica(), .micro_batch = task.micro_batch(), .stage = at}];
    lock.unlock();
    std::call_once(of_stage.made, [&] { make(of_stage.state, task, stage); });
    return of_stage.state;
  }

  void make(MicroBatchState& state, const Task& task, const StageRunner& stage) {
    const batch::MicroBatch& mb = micro_batch_of(task);
    FeedSettings settings{.state = plans.graph().precision().state,
                          .device = e.options_.device,
                          .reads_tokens = stage.reads_tokens,
                          .flash = e.flash_,
                          .padded = e.padded_,
                          .by_document = e.rope_.by_document(),
                          .ring_rank = stage.ring,
                          .ring_hosts = layout::host_pattern(stage.peers, plans.cluster()),
                          .passing = stage.stage.passing};
    if (plans.graph().is_random()) settings.seed = {e.options_.seed, input.plan->step};
    state.feeds = feeds_of(mb, *input.documents, labels(), input.plan->valid_tokens, settings);
    state.feeds_made = Mark::here(e.options_.device);
    if (e.rope_.by_document()) state.rope = e.rope_;
    stage.runner.make_room(state);
  }

  void run(int id, const Task& task, TaskTimes& of_task) {
    StageRunner& stage = runner_of(task);
    MicroBatchState& state = state_of(task, task.stage(), stage);
    RunHooks hooks;
    hooks.await = [&](int unit) {
      of_task.pause();
      for (const ir::Wait& wait : task.after)
        if (wait.unit == unit && mine(wait.task)) signals.wait(static_cast<size_t>(wait.task));
      of_task.resume();
    };
    hooks.collective = [&](const Flight::Times& exchange) { of_task.exchanged(exchange); };
    const ir::Segment& segment = stage.stage.segment(task.pass());
    hooks.clock = input.probe.clock;
    hooks.head_start = input.probe.head_start;
    if (input.probe.times_operators())
      hooks.timed = [&](int instr, Seconds time, Seconds issue) {
        if (input.probe.computed) keep_computed({.task = id, .instr = instr, .seconds = time.count});
        if (input.probe.timed)
          input.probe.timed({.stage = stage.stage,
                             .instr = segment.code[static_cast<size_t>(instr)],
                             .position = stage.position,
                             .micro_batch = micro_batch_of(task),
                             .time = time,
                             .issue = issue});
      };
    hooks.release = [&](int unit) {
      if (const auto it = release_flag.find({id, unit}); it != release_flag.end()) signals.set(it->second);
    };
    std::array<i64, kWithin> numbers;  // number of the last transaction within the run, by Within
    numbers.fill(number_of(id) << 16);
    const auto number = [&](Within who) { return &numbers[static_cast<size_t>(who)]; };
    const bool beside = e.options_.beside.value_or(e.fabric_.cluster().overlaps_collectives) &&
                        !input.probe.times_operators() && !ir::is_collective(segment, task.piece());
    const Within collectives = collectives_of(segment);
    const config::Compression& compression =
        plans.strategies()[static_cast<size_t>(strategy_of(task.phase))].strategy.compression;
    const ReplicaLink replica{.fabric = &e.fabric_,
                              .channel = {channel_within(task, Within::operators).id, stage.ranks},
                              .number = number(Within::operators),
                              .collectives = {channel_within(task, collectives).id, stage.ranks},
                              .collective_number = number(collectives),
                              .pattern = stage.pattern,
                              .compression = compression,
                              .served = stage.served.empty() ? nullptr : &stage.served,
                              .stream = beside && stage.ranks.size() > 1 ? &e.collective_stream() : nullptr,
                              .ring = {.channel = channel_within(task, Within::ring),
                                       .number = number(Within::ring),
                                       .peers = stage.peers,
                                       .encoding = compression.rule(compression.keys),
                                       .stream = beside && stage.peers.size() > 1 ? &e.collective_stream() : nullptr,
                                       .exchanged = hooks.collective}};
    state.feeds_made.wait();
    stage.runner.record_uses(state);
    stage.runner.run(segment, task.piece(), state, e.store_.working, run_key(task), replica,
                     state.rope ? *state.rope : e.rope_, hooks);
    if (!ir::is_last_computed(segment, task.piece())) return;
    if (task.forward() && stage.stage.logits >= 0) keep_logits(task, stage, state);
    const bool trained = !stage.stage.backward.code.empty();
    if (stage.stage.loss >= 0 && task.pass() != Pass::W && task.forward() != trained &&
        layout::is_first_copy(stage.stage.replica, stage.stage.buffers[static_cast<size_t>(stage.stage.loss)].layout,
                              stage.position))
      add_loss(stage, state);
  }

  void add_loss(const StageRunner& stage, const MicroBatchState& state) {
    const kernels::MemoryScope outside(nullptr);
    const at::Tensor loss = state.slots[static_cast<size_t>(stage.stage.loss)].to(at::kDouble);
    loss_sums.select(0, 0).add_(loss.sum());
    if (loss_sums.numel() == 1) return;
    const ir::Buffer& buffer = stage.stage.buffers[static_cast<size_t>(stage.stage.loss)];
    const layout::Box box = ir::scaled(buffer, buffer.box[static_cast<size_t>(stage.position)],
                                       ir::token_unit(stage.stage.replica, state.feeds.T));
    loss_sums.narrow(0, 1, loss_sums.numel() - 1)
        .index_add_(0, state.feeds.sources.narrow(0, box.lo[0], loss.numel()), loss);
  }

  const Labels& labels() const {
    static const Labels kPlain;
    return input.labels ? *input.labels : kPlain;
  }

  void keep_logits(const Task& task, const StageRunner& stage, MicroBatchState& state) {
    const ir::Buffer& buffer = stage.stage.buffers[static_cast<size_t>(stage.stage.logits)];
    const layout::Box box = ir::scaled(buffer, buffer.box[static_cast<size_t>(stage.position)],
                                       ir::token_unit(stage.stage.replica, state.feeds.T));
    e.logits_.push_back({.phase = task.phase,
                         .replica = task.replica(),
                         .micro_batch = task.micro_batch(),
                         .ring_rank = stage.ring,
                         .first_token = box.lo[0],
                         .first_column = box.lo[1],
                         .values = state.slots[static_cast<size_t>(stage.stage.logits)]});
  }

  // Boundary values between two stages of a replica. A rank belongs to one of them, or hands the tensor to its next
  // chunk.
  void send(int id, const Task& task) {
    const int to = task.forward() ? task.stage() + 1 : task.stage() - 1;
    const std::vector<compiler::StateKey> here = compiler::states_of(task, e.rank_);
    Transfer transfer = transfer_of(task);
    at::Tensor sent;
    for (const compiler::StateKey& at : here) {
      const bool sending = at.stage == task.stage();
      StageRunner& stage = runner_of(task, at.stage);
      MicroBatchState& state = state_of(task, at.stage, stage);
      const ir::StageCode& code = stage.stage;
      const int buffer =
          sending ? (task.forward() ? code.act_out : code.grad_out) : (task.forward() ? code.act_in : code.grad_in);
      at::Tensor& slot = state.slots[static_cast<size_t>(buffer)];
      if (!sending && sent.defined()) {
        slot = sent;
        continue;
      }
      const at::Tensor tensor = sending ? slot : stage.runner.allocate(buffer, state);
      add_messages(transfer, task, tensor, stage, buffer, state.feeds.T);
      // Let go before sending: once the peer has the values its answer may come.
      const bool stashed = std::find(code.stash.begin(), code.stash.end(), buffer) != code.stash.end();
      if (sending && task.forward() && !stashed) slot = at::Tensor();
      if (sending && here.size() > 1) sent = tensor;
    }
    if (here.size() == 1) transact(transfer, id, task);
    check(here.size() == 1 || here.back().stage == to, "{} is neither sent nor handed over", task);
  }

  void add_messages(Transfer& transfer, const Task& task, const at::Tensor& tensor, const StageRunner& stage,
                    int buffer, i64 T) const {
    layout::Box box = stage.stage.buffers[static_cast<size_t>(buffer)].box[static_cast<size_t>(stage.position)];
    const i64 unit = ir::token_unit(stage.stage.replica, T);
    box.lo[0] *= unit;
    box.hi[0] *= unit;
    for (const layout::Msg& m : task.messages) {
      if (m.src == m.dst) continue;
      if (m.src == e.rank_) send(transfer, task, m, view_of(tensor, box, m.box));
      if (m.dst == e.rank_) receive(transfer, task, m, view_of(tensor, box, m.box), false);
    }
  }

  void zero(const Task& task) {
    const ir::StageCode& code = runner_of(task).stage;
    const RunKey run = run_key(task);
    const auto in_piece = [&, units = ir::units_written(code.segment(task.pass()), task.piece())](int param) {
      return std::ranges::find(units, plans.graph().param(param).unit) != units.end();
    };
    for (const ir::ParamUse& use : code.params)
      if (task.micro_batch() >= 0 && in_piece(use.param))
        e.store_.working.run_gradient(run, use.param);
      else if (task.micro_batch() < 0 && e.store_.holdings.grad(run.phase.strategy, use.param))
        e.store_.working.gradient(run.phase, use.param);
  }

  // Partials are added where they lie, `own`, and the sum of all, which reaches its owner in the last round, to
  // `total`.
  template <class Own, class Total>
  void sum(int id, const Task& task, const Own& own, const Total& total) {
    Transfer transfer = transfer_of(task);
    add_collectives(transfer, task, true, own, total);
    const auto& by_calls = served(task).of_param;
    for (const layout::Msg& m : task.messages) {
      if (by_calls.contains(m.tensor)) continue;
      if (m.src == e.rank_ && m.dst != e.rank_) send(transfer, task, m, own(m));
      if (m.dst != e.rank_) continue;
      const at::Tensor sum = own(m);
      if (m.src == e.rank_)
        transfer.local(total(m), sum, true);
      else
        receive(transfer, task, m, sum.defined() ? sum : total(m), true);
    }
    transact(transfer, id, task);
  }

  // Running sums lie in the strategy's accumulators; what reaches its owner is added to home's gradient.
  void reduce(int id, const Task& task) {
    const PhaseKey phase = key(task.phase);
    const auto accumulated = [&](const layout::Msg& m) -> at::Tensor {
      const layout::Box* box = e.store_.holdings.grad(phase.strategy, m.tensor);
      return box && box->contains(m.box) ? view_of(e.store_.working.gradient(phase, m.tensor), *box, m.box)
                                         : at::Tensor();
    };
    sum(id, task, accumulated, [&](const layout::Msg& m) { return home_gradient(m); });
  }

  // Gradients of a run are added to the strategy's accumulators.
  void reduce_scatter(int id, const Task& task) {
    const RunKey run = run_key(task);
    const auto made = [&](const layout::Msg& m) {
      return view_of(e.store_.working.run_gradient(run, m.tensor),
                     *e.store_.holdings.made(run.phase.strategy, m.tensor), m.box);
    };
    const auto accumulated = [&](const layout::Msg& m) {
      return view_of(e.store_.working.gradient(run.phase, m.tensor),
                     *e.store_.holdings.grad(run.phase.strategy, m.tensor), m.box);
    };
    sum(id, task, made, accumulated);
  }

  at::Tensor home_gradient(const layout::Msg& m) const {
    const HomeShard& shard = e.store_.home.shard(m.tensor, m.box);
    return view_of(shard.grad, shard.box, m.box);
  }

  void broadcast(int id, const Task& task) {
    Transfer transfer = transfer_of(task);
    const auto gradient = [&](const layout::Msg& m) { return home_gradient(m); };
    add_collectives(transfer, task, false, gradient, gradient);
    const auto& by_calls = served(task).of_param;
    for (const layout::Msg& m : task.messages) {
      if (m.src == m.dst || by_calls.contains(m.tensor)) continue;
      if (m.src == e.rank_) send(transfer, task, m, home_gradient(m));
      if (m.dst == e.rank_) receive(transfer, task, m, home_gradient(m), false);
    }
    transact(transfer, id, task);
  }

  // Without an update no task sums over the ranks.
  void keep_own_loss() { keep_loss(on_host(loss_sums)); }

  void keep_loss(const std::vector<double>& sums) {
    result.loss = sums[0];
    result.source_loss.assign(sums.begin() + 1, sums.end());
  }

  // Values of a flat fp64 tensor; the host waits for those of a device.
  static std::vector<double> on_host(const at::Tensor& values) {
    const at::Tensor host = values.cpu();
    return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
  }

  // Updates, which come after the norm, overwrite what allocations, moves and gathers have read. If nothing is computed
  // with it, as those who have it have no documents, nobody else waits for them.
  void await_reads_of_home() {
    for (const int id : tasks)
      if (const TaskKind kind = program.tasks[static_cast<size_t>(id)].kind();
          kind == TaskKind::allocate || kind == TaskKind::move || kind == TaskKind::gather)
        signals.wait(static_cast<size_t>(id));
  }

  // Global norm, loss, and that of each source in one small exchange, fp64, in rank order.
  void norm(int id, const Task& task, TaskTimes& of_task) {
    await_reads_of_home();
    std::vector<double> sums;
    {
      const kernels::MemoryScope outside(nullptr);
      at::Tensor squares = zeros({1}, DType::f64, e.options_.device);
      e.store_.home.add_gradient_squares(squares);
      sums = on_host(at::cat({squares, loss_sums}));
    }
    of_task.begin_collective();
    comm::all_reduce(e.fabric_, channel_of(task), "norm", number_of(id), sums.data(), static_cast<i64>(sums.size()),
                     DType::f64);
    of_task.end_collective();
    result.norm = std::sqrt(sums[0]);
    keep_loss({sums.begin() + 1, sums.end()});
    result.finite = std::isfinite(sums[0]) && std::isfinite(result.loss);
    if (result.finite) {
      update = input.update(result.norm);
    } else {
      e.store_.home.zero_gradients();
      e.store_.residuals.zero();
    }
  }

  Executor& e;
  const compiler::Plans& plans;
  const ir::Program& program;
  const StepInput& input;
  const std::vector<int>& tasks;
  const std::multimap<int, int> rooms;
  std::map<compiler::QueueKey, at::Tensor> encoding_rooms;
  std::map<std::pair<int, int>, size_t> release_flag;
  Signals signals;
  std::mutex mutex;
  struct OnceMade {
    std::once_flag made;
    MicroBatchState state;
  };
  std::map<compiler::StateKey, OnceMade> states;
  std::map<compiler::UnitUse, int> users;     // tasks to come that need it
  std::map<compiler::StateKey, int> workers;  // tasks to come that work on it
  UpdateSettings update;
  at::Tensor loss_sums;          // by the compute stream: all, then those of each source, if there are several
  std::vector<TaskTimes> times;  // times of tasks that are done, or that a device has got
  StepResult result;
};

Executor::Executor(const compiler::Plans& plans, Store& store, comm::Fabric& fabric, ExecutorOptions options)
    : plans_(plans),
      store_(store),
      fabric_(fabric),
      options_(std::move(options)),
      rank_(fabric.rank()),
      served_(fabric),
      rope_(options_.rope_theta, options_.rope_scaling),
      flash_(plans.graph().precision().compute == DType::bf16 && kernels::has_flash_attention(options_.device)),
      padded_(flash_ && ir::fits_padded_attention(ir::attention_head_dim(plans.graph())) &&
              kernels::has_padded_attention(options_.device, ir::attention_head_dim(plans.graph()))) {
  // Every step then needs the same memory.
  const compiler::RotaryTables tables = compiler::rotary_tables(plans.graph(), plans.longest_document());
  if (tables.positions > 0)
    rope_.get(static_cast<int>(tables.head_dim), tables.positions,
              empty({0}, plans.graph().precision().state, options_.device));
}

Executor::~Executor() = default;

std::unique_ptr<Stream> Executor::new_stream(int threads) {
  return std::make_unique<Stream>([this, threads] {
    use_own_stream(options_.device);
    kernels::set_up_compute_thread(threads);
    if (options_.memory) options_.memory->adopt_thread();
  });
}

Stream& Executor::stream(const Task& task) {
  std::unique_ptr<Stream>& made = streams_[{static_cast<int>(task.queue), ir::stage_of_queue(task)}];
  if (!made) made = new_stream(task.queue == ir::Queue::compute ? options_.threads : 1);
  return *made;
}

// Called from the compute stream.
Stream& Executor::collective_stream() {
  if (!collective_stream_) collective_stream_ = new_stream(1);
  return *collective_stream_;
}

Executor::StageRunner& Executor::stage_runner(const compiler::Plans& plans, int strategy, const Task& task, int stage) {
  std::unique_ptr<StageRunner>& made = stage_runners_[{&plans, strategy, task.replica(), stage}];
  if (!made) {
    made = std::make_unique<StageRunner>(plans, plans.strategies()[static_cast<size_t>(strategy)], task, stage, fabric_,
                                         options_.device);
  }
  return *made;
}

StepResult Executor::run(const ir::Program& program, const StepInput& input) {
  ++steps_;
  const auto start = Clock::now();
  Step step(*this, program, input);
  // Runners exist before any stream looks them up, and streams before any of them begins.
  for (const int id : step.tasks) {
    const Task& task = program.tasks[static_cast<size_t>(id)];
    if (task.kind() == TaskKind::run || task.kind() == TaskKind::zero_fill) step.runner_of(task);
    stream(task);
  }
  step.make_room(compiler::kStart);
  const Mark begun = Mark::here(options_.device);
  const Instant step_start = Instant::here(options_.device);
  std::map<Stream*, Mark> ends;
  for (const int id : step.tasks) {
    Stream& on = stream(program.tasks[static_cast<size_t>(id)]);
    if (ends.try_emplace(&on).second) on.enqueue([&] { step.guard([&] { begun.wait(); }); });
    on.enqueue([&step, id] { step.execute(id); });
  }
  for (auto& [on, end] : ends) on->enqueue([&, to = &end] { step.guard([&] { *to = Mark::here(options_.device); }); });
  for (auto& [on, end] : ends) on->drain();
  if (collective_stream_) collective_stream_->drain();
  if (step.signals.failed()) {
    step.guard([&] { wait_for_device(options_.device); });  // its memory is given back in no order
    step.signals.rethrow();
  }
  for (const auto& [on, end] : ends) end.wait();
  if (!input.update) step.keep_own_loss();
  if (input.probe.spans) wait_for_device(options_.device);  // a step that is traced is known to its end
  step.result.times.total = seconds_since(start);
  keep_times(step, step_start);
  return step.result;
}

void Executor::keep_times(Step& step, const Instant& step_start) {
  if (step.input.probe.spans)
    for (const TaskTimes& of_task : step.times)
      for (const TaskSpan& span : of_task.spans(step_start)) step.result.spans.push_back(span);
  std::ranges::move(step.times, std::back_inserter(late_));
  std::vector<TaskSpan> ended;
  std::erase_if(late_, [&](const TaskTimes& of_task) {
    if (!of_task.reached()) return false;
    of_task.add_to(step.result.times);
    if (!of_task.receives())
      for (const TaskSpan& span : of_task.spans(step_start)) ended.push_back(span);
    return true;
  });
  add_communication(ended, step.result.times);
}

}  // namespace switchyard::runtime
