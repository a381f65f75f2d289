#include "runtime/segment_runner.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "runtime/collectives.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

SegmentRunner::SegmentRunner(const ir::Graph& graph, const ir::StageCode& stage, int position, DType state,
                             at::Device device)
    : graph_(graph), stage_(stage), position_(position), state_dtype_(state), device_(device) {
  for (size_t b = 0; b < stage.buffers.size(); ++b)
    if (stage.buffers[b].root >= 0) members_[stage.buffers[b].root].push_back(static_cast<int>(b));
  for (auto& [root, list] : members_)
    std::sort(list.begin(), list.end(), [&](int a, int b) {
      return stage.buffers[static_cast<size_t>(a)].root_slot < stage.buffers[static_cast<size_t>(b)].root_slot;
    });
  for (const ir::Segment* segment : {&stage.forward, &stage.backward, &stage.weight})
    for (const ir::Instr& instr : segment->code)
      if (instr.op) kernels_[instr.op.get()] = find_kernel(instr.op->name());
}

at::Tensor SegmentRunner::allocate(int buffer, MicroBatchState& state) const {
  const ir::Buffer& b = stage_.buffers[static_cast<size_t>(buffer)];
  const auto size = [&](int index) {
    return ir::local_size(stage_.buffers[static_cast<size_t>(index)], position_, stage_.replica.size(),
                          {state.feeds.T, state.feeds.squared_lengths});
  };
  at::Tensor& slot = state.slots[static_cast<size_t>(buffer)];
  if (b.root < 0) {
    slot = empty(size(buffer), b.type.dtype, device_);
    return slot;
  }
  const std::vector<int>& members = members_.at(b.root);
  i64 before = 0, width = 0;
  for (const int m : members) {
    const i64 columns = size(m)[1];
    if (stage_.buffers[static_cast<size_t>(m)].root_slot < b.root_slot) before += columns;
    width += columns;
  }
  const std::vector<i64> own = size(buffer);
  at::Tensor& root = state.roots[b.root];
  if (!root.defined()) root = empty({own[0], width}, b.type.dtype, device_);
  slot = root.narrow(1, before, own[1]);
  return slot;
}

void SegmentRunner::record_uses(const MicroBatchState& state) const {
  if (device_.is_cpu()) return;
  const MicroBatchFeeds& feeds = state.feeds;
  for (const at::Tensor* feed :
       {&feeds.ids, &feeds.positions, &feeds.labels, &feeds.weights, &feeds.keys, &feeds.sources})
    record_use(*feed);
  for (const auto& calls : feeds.flash)
    for (const kernels::FlashCall& call : calls) record_use(call.query_ends);  // all lie in one block of memory
  for (const int buffer : {stage_.act_in, stage_.grad_in})
    if (buffer >= 0) record_use(state.slots[static_cast<size_t>(buffer)]);
}

at::Tensor SegmentRunner::operand(int buffer, bool output, MicroBatchState& state, WorkingParameters& working,
                                  const RunKey& key) const {
  const ir::Buffer& b = stage_.buffers[static_cast<size_t>(buffer)];
  const ir::Value& value = graph_.value(b.value);
  switch (b.kind) {
    case ir::ValueKind::param:
      return working.run_param(key, value.param);
    case ir::ValueKind::gradient:
      return working.run_gradient(key, value.param);
    case ir::ValueKind::activation:
      break;
    case ir::ValueKind::feed:
      if (b.layout == layout::replicated(1)) {
        switch (value.feed) {
          case ir::Feed::ids:
            return state.feeds.ids;
          case ir::Feed::positions:
            return state.feeds.positions;
          case ir::Feed::labels:
            return state.feeds.labels;
          default:
            return state.feeds.weights;
        }
      }
  }
  if (output) return allocate(buffer, state);
  const at::Tensor& slot = state.slots[static_cast<size_t>(buffer)];
  check(slot.defined(), "{} is read before it is made", b.name);
  return slot;
}

void SegmentRunner::run(const ir::Segment& segment, int piece, MicroBatchState& state, WorkingParameters& working,
                        const RunKey& key, const ReplicaLink& replica, RopeTables& rope, const RunHooks& hooks) const {
  if (state.slots.empty()) state.slots.resize(stage_.buffers.size());
  const std::vector<ir::Instr>& code = segment.code;
  const auto first = static_cast<int>(ir::range_of(segment, piece).first);
  const auto from = [&](const std::vector<ir::UnitEvent>& events) {
    return static_cast<size_t>(std::ranges::lower_bound(events, first, {}, &ir::UnitEvent::instr) - events.begin());
  };
  size_t await = from(segment.awaits), release = from(segment.releases);
  Collectives collectives(replica.stream);
  const auto report = [&](const std::optional<Collectives::Times>& times) {
    if (times && hooks.collective) hooks.collective(*times);
  };
  const auto start = [&](size_t i) {
    const ir::Instr& instr = code[i];
    for (; await < segment.awaits.size() && segment.awaits[await].instr == static_cast<int>(i); ++await)
      hooks.await(segment.awaits[await].unit);
    const double started = hooks.timed ? hooks.clock() : 0;
    KernelCall call{.instr = instr,
                    .stage = stage_,
                    .position = position_,
                    .in = {},
                    .out = {},
                    .feeds = state.feeds,
                    .rope = rope,
                    .replica = replica,
                    .state = state_dtype_};
    for (const int b : instr.in) call.in.push_back(operand(b, false, state, working, key));
    for (const int b : instr.out) call.out.push_back(operand(b, true, state, working, key));
    if (!instr.op) {
      const std::vector<int>& next = ir::ending_before(segment, i + 1);
      return report(collectives.launch(i, call, std::ranges::find(next, static_cast<int>(i)) != next.end()));
    }
    kernels_.at(instr.op.get())(call);
    if (!hooks.timed) return;
    wait_for_device(device_);
    hooks.timed(static_cast<int>(i), Seconds{hooks.clock() - started});
  };
  const auto end = [&](size_t i) {
    if (!code[i].op) report(collectives.wait(i));
    for (const int b : code[i].drop) {
      state.slots[static_cast<size_t>(b)] = at::Tensor();
      state.roots.erase(stage_.buffers[static_cast<size_t>(b)].root);
    }
    for (; release < segment.releases.size() && segment.releases[release].instr == static_cast<int>(i); ++release)
      hooks.release(segment.releases[release].unit);
  };
  ir::walk(segment, piece, start, end);
}

}  // namespace switchyard::runtime
