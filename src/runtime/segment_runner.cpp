#include "runtime/segment_runner.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "runtime/collectives.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

// Times of a run's operators: on a CPU by a clock; on a device from its first work for one to its last, while the
// host is ahead, as it is when nothing is timed, and what the host takes to give it that work.
class OperatorTimes {
 public:
  OperatorTimes(const at::Device& device, const RunHooks& hooks) : device_(device), hooks_(hooks) {
    if (hooks_.timed && hooks_.head_start) hooks_.head_start();
  }
  void start(size_t instr) {
    if (!hooks_.timed) return;
    Operator& made = operators_.emplace_back(Operator{.instr = static_cast<int>(instr)});
    if (!device_.is_cpu()) made.started = Instant::here(device_);
    made.host = -hooks_.clock();
  }
  void end() {
    if (!hooks_.timed) return;
    Operator& last = operators_.back();
    last.host += hooks_.clock();
    if (!device_.is_cpu()) last.ended = Instant::here(device_);
  }
  void report() const {
    if (!hooks_.timed) return;
    wait_for_stream(device_);
    for (const Operator& one : operators_)
      if (device_.is_cpu())
        hooks_.timed(one.instr, Seconds{one.host}, Seconds{0});
      else
        hooks_.timed(one.instr, Seconds{one.ended.seconds_since(one.started)}, Seconds{one.host});
  }

 private:
  struct Operator {
    int instr;
    double host = 0;
    Instant started{}, ended{};
  };
  at::Device device_;
  const RunHooks& hooks_;
  std::vector<Operator> operators_;
};

}  // namespace

SegmentRunner::SegmentRunner(const ir::Graph& graph, const ir::StageCode& stage, int position, DType state,
                             at::Device device)
    : stage_(stage), position_(position), state_dtype_(state), device_(device), columns_(columns_of_roots()) {
  for (const ir::Buffer& buffer : stage.buffers) roots_ = std::max(roots_, static_cast<size_t>(buffer.root + 1));
  forward_ = resolve(graph, stage.forward);
  backward_ = resolve(graph, stage.backward);
  weight_ = resolve(graph, stage.weight);
  joined_ = resolve(graph, stage.joined);
}

std::vector<SegmentRunner::Columns> SegmentRunner::columns_of_roots() const {
  std::vector<Columns> columns(stage_.buffers.size());
  for (size_t b = 0; b < columns.size(); ++b) {
    const ir::Buffer& own = stage_.buffers[b];
    if (own.root < 0) continue;
    for (const ir::Buffer& member : stage_.buffers) {
      if (member.root != own.root) continue;
      const i64 width = member.box[static_cast<size_t>(position_)].size(1);
      if (member.root_slot < own.root_slot) columns[b].first += width;
      columns[b].all += width;
    }
  }
  return columns;
}

SegmentRunner::Operand SegmentRunner::resolve(const ir::Graph& graph, int buffer) const {
  const ir::Buffer& b = stage_.buffers[static_cast<size_t>(buffer)];
  const ir::Value& value = graph.value(b.value);
  if (b.kind == ir::ValueKind::param) return {.place = Operand::Place::param, .number = value.param};
  if (b.kind == ir::ValueKind::gradient) return {.place = Operand::Place::gradient, .number = value.param};
  if (b.kind == ir::ValueKind::activation || b.layout != layout::replicated(1)) return {.number = buffer};
  const auto feed = value.feed == ir::Feed::ids         ? &MicroBatchFeeds::ids
                    : value.feed == ir::Feed::positions ? &MicroBatchFeeds::positions
                    : value.feed == ir::Feed::labels    ? &MicroBatchFeeds::labels
                                                        : &MicroBatchFeeds::weights;
  return {.place = Operand::Place::feed, .number = buffer, .feed = feed};
}

std::vector<SegmentRunner::Call> SegmentRunner::resolve(const ir::Graph& graph, const ir::Segment& segment) const {
  std::vector<Call> calls;
  for (const ir::Instr& instr : segment.code) {
    Call& call = calls.emplace_back();
    if (instr.op) call.kernel = find_kernel(instr.op->name());
    for (const int b : instr.in) call.in.push_back(resolve(graph, b));
    for (const int b : instr.out) call.out.push_back(resolve(graph, b));
  }
  return calls;
}

const std::vector<SegmentRunner::Call>& SegmentRunner::calls(const ir::Segment& segment) const {
  if (&segment == &stage_.forward) return forward_;
  if (&segment == &stage_.backward) return backward_;
  if (&segment == &stage_.weight) return weight_;
  check(&segment == &stage_.joined, "a segment of another stage");
  return joined_;
}

void SegmentRunner::make_room(MicroBatchState& state) const {
  state.slots.resize(stage_.buffers.size());
  state.roots = std::vector<MicroBatchState::Root>(roots_);
}

at::Tensor SegmentRunner::allocate(int buffer, MicroBatchState& state) const {
  const ir::Buffer& b = stage_.buffers[static_cast<size_t>(buffer)];
  const std::vector<i64> size =
      ir::local_size(b, position_, stage_.replica.size(), {state.feeds.T, state.feeds.squared_lengths});
  at::Tensor& slot = state.slots[static_cast<size_t>(buffer)];
  if (b.root < 0) return slot = empty(size, b.type.dtype, device_);
  const Columns& columns = columns_[static_cast<size_t>(buffer)];
  MicroBatchState::Root& root = state.roots[static_cast<size_t>(b.root)];
  bool fresh = false;
  std::call_once(root.made, [&] {
    root.memory = empty({size[0], columns.all}, b.type.dtype, device_);
    if (stage_.paired) root.ready = Mark::here(device_);  // else one stream makes all of them
    fresh = true;
  });
  if (stage_.paired && !fresh) {
    root.ready.wait();
    record_use(root.memory);
  }
  return slot = root.memory.narrow(1, columns.first, size[1]);
}

void SegmentRunner::record_uses(const MicroBatchState& state) const {
  if (device_.is_cpu()) return;
  const MicroBatchFeeds& feeds = state.feeds;
  for (const at::Tensor* feed :
       {&feeds.ids, &feeds.positions, &feeds.labels, &feeds.weights, &feeds.keys, &feeds.sources})
    record_use(*feed);
  for (const auto& calls : feeds.flash)
    for (const kernels::FlashCall& call : calls.mixed) record_use(call.query_ends);  // all lie in one block of memory
  for (const int buffer : {stage_.act_in, stage_.grad_in})
    if (buffer >= 0) record_use(state.slots[static_cast<size_t>(buffer)]);
}

at::Tensor SegmentRunner::tensor(const Operand& operand, bool output, MicroBatchState& state,
                                 WorkingParameters& working, const RunKey& key) const {
  switch (operand.place) {
    case Operand::Place::param:
      return working.run_param(key, operand.number);
    case Operand::Place::gradient:
      return working.run_gradient(key, operand.number);
    case Operand::Place::feed:
      return state.feeds.*operand.feed;
    case Operand::Place::slot:
      break;
  }
  if (output) return allocate(operand.number, state);
  const at::Tensor& slot = state.slots[static_cast<size_t>(operand.number)];
  check(slot.defined(), "{} is read before it is made", stage_.buffers[static_cast<size_t>(operand.number)].name);
  return slot;
}

void SegmentRunner::run(const ir::Segment& segment, int piece, MicroBatchState& state, WorkingParameters& working,
                        const RunKey& key, const ReplicaLink& replica, RopeTables& rope, const RunHooks& hooks) const {
  const std::vector<ir::Instr>& code = segment.code;
  const std::vector<Call>& resolved = calls(segment);
  const ir::PieceRange range = ir::range_of(segment, piece);
  const auto first = static_cast<int>(range.first);
  const auto from = [&](const std::vector<ir::UnitEvent>& events) {
    return static_cast<size_t>(std::ranges::lower_bound(events, first, {}, &ir::UnitEvent::instr) - events.begin());
  };
  size_t await = from(segment.awaits), release = from(segment.releases);
  Collectives collectives(replica.stream);
  const auto report = [&](const std::optional<Collectives::Times>& times) {
    if (times && hooks.collective) hooks.collective(*times);
  };
  OperatorTimes times(device_, hooks);
  const auto start = [&](size_t i) {
    const ir::Instr& instr = code[i];
    for (; await < segment.awaits.size() && segment.awaits[await].instr == static_cast<int>(i); ++await)
      hooks.await(segment.awaits[await].unit);
    if (instr.op) times.start(i);
    KernelCall call{.instr = instr,
                    .stage = stage_,
                    .position = position_,
                    .in = {},
                    .out = {},
                    .feeds = state.feeds,
                    .rope = rope,
                    .replica = replica,
                    .state = state_dtype_};
    call.in.reserve(instr.in.size());
    call.out.reserve(instr.out.size());
    for (const Operand& operand : resolved[i].in) call.in.push_back(tensor(operand, false, state, working, key));
    for (const Operand& operand : resolved[i].out) call.out.push_back(tensor(operand, true, state, working, key));
    if (ir::is_collective(segment, piece))  // operators run on another stream
      for (const at::Tensor& input : call.in) record_use(input);
    if (!instr.op) {
      const std::vector<int>& next = ir::ending_before(segment, i + 1);
      return report(collectives.launch(i, call, std::ranges::find(next, static_cast<int>(i)) != next.end()));
    }
    resolved[i].kernel(call);
    if (replica.fabric) replica.fabric->works();
    times.end();
  };
  const auto end = [&](size_t i) {
    if (!code[i].op && range.first <= i && i < range.end)
      report(collectives.wait(i));
    else if (!code[i].op)  // made by another stream
      for (const int b : code[i].out) record_use(state.slots[static_cast<size_t>(b)]);
    for (const int b : code[i].drop) state.slots[static_cast<size_t>(b)] = at::Tensor();
    for (const int root : code[i].drop_roots) state.roots[static_cast<size_t>(root)].memory = at::Tensor();
    for (; release < segment.releases.size() && segment.releases[release].instr == static_cast<int>(i); ++release)
      hooks.release(segment.releases[release].unit);
  };
  ir::walk(segment, piece, start, end);
  times.report();
}

}  // namespace switchyard::runtime
