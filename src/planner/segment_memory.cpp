#include "planner/segment_memory.hpp"

#include <algorithm>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::planner {

// Buffers of a root share one block, which is there from the first to the last of them.
class StageMemory::Replay {
 public:
  Replay(const StageMemory& memory, const Position& position, const ir::CallSize& size)
      : stage_(memory.stage_),
        position_(position),
        extent_{size.tokens, size.tokens * std::min(size.tokens, size.longest)},
        size_(size),
        here_(stage_.buffers.size(), false),
        roots_(memory.roots_) {
    bytes_.reserve(stage_.buffers.size());
    for (const ir::Buffer& buffer : stage_.buffers) {
      bytes_.push_back(ir::local_bytes(buffer, position.number, stage_.replica.size(), extent_));
      if (buffer.root >= 0) root(buffer).bytes += bytes_.back();
    }
  }

  Kept run() {
    Kept kept;
    take(stage_.act_in);
    kept.forward_peak = run(stage_.forward, position_.calls[0]);
    if (std::ranges::count(stage_.stash, stage_.act_out) == 0) release(stage_.act_out);
    kept.stash = now_;
    take(stage_.grad_in);
    kept.backward_peak = std::max(now_, run(stage_.backward, position_.calls[1]));
    if (!stage_.weight.code.empty()) {
      kept.later = now_;
      kept.backward_peak = std::max(kept.backward_peak, run(stage_.weight, position_.calls[2]));
    }
    return kept;
  }

 private:
  struct Root {
    i64 bytes = 0;
    bool here = false;
  };

  i64 run(const ir::Segment& segment, const std::vector<Call>& calls) {
    i64 peak = now_;
    const auto start = [&](size_t i) {
      const ir::Instr& instr = segment.code[i];
      for (const int b : instr.out)
        if (buffer(b).kind != ir::ValueKind::gradient) take(b);
      if (!instr.op) now_ += scratch(calls[i]);
      peak = std::max(peak, now_ + (instr.op ? workspace(*instr.op, calls[i]) : 0));
    };
    const auto end = [&](size_t i) {
      const ir::Instr& instr = segment.code[i];
      if (!instr.op) now_ -= scratch(calls[i]);
      for (const int b : instr.drop) release(b);
      for (const int number : instr.drop_roots) now_ -= roots_[static_cast<size_t>(number)].bytes;
    };
    ir::walk(segment, start, end);
    return peak;
  }

  void take(int b) {
    if (b < 0 || here_[static_cast<size_t>(b)]) return;
    here_[static_cast<size_t>(b)] = true;
    if (buffer(b).root < 0)
      now_ += bytes_[static_cast<size_t>(b)];
    else if (!std::exchange(root(buffer(b)).here, true))
      now_ += root(buffer(b)).bytes;
  }
  void release(int b) {
    if (b < 0 || !here_[static_cast<size_t>(b)]) return;
    here_[static_cast<size_t>(b)] = false;
    if (buffer(b).root < 0) now_ -= bytes_[static_cast<size_t>(b)];
  }

  const ir::Buffer& buffer(int b) const { return stage_.buffers[static_cast<size_t>(b)]; }
  Root& root(const ir::Buffer& buffer) { return roots_[static_cast<size_t>(buffer.root)]; }
  i64 workspace(const ir::Operator& op, const Call& call) const {
    ir::CallSize local = size_;
    local.tokens = static_cast<i64>(call.share * static_cast<double>(size_.tokens));
    return op.workspace(call.in, call.out, local);
  }
  i64 scratch(const Call& call) const {
    return call.by_tokens ? call.scratch * (extent_.tokens / stage_.replica.size()) : call.scratch;
  }

  const ir::StageCode& stage_;
  const Position& position_;
  ir::Extent extent_;  // micro-batches full of the longest documents
  ir::CallSize size_;
  i64 now_ = 0;
  std::vector<bool> here_;
  std::vector<i64> bytes_;
  std::vector<Root> roots_;
};

// Heads that are not divided evenly, and what is computed with them, differ from position to position.
StageMemory::StageMemory(const ir::StageCode& stage) : stage_(stage) {
  for (const ir::Buffer& buffer : stage.buffers) roots_ = std::max(roots_, static_cast<size_t>(buffer.root + 1));
  const auto like = [&](const Position& earlier, int number) {
    return std::ranges::all_of(
        stage.buffers, [&](const ir::Buffer& buffer) { return ir::same_sizes(buffer, earlier.number, number); });
  };
  for (int number = 0; number < stage.replica.size(); ++number) {
    if (std::ranges::any_of(positions_, [&](const Position& earlier) { return like(earlier, number); })) continue;
    Position& position = positions_.emplace_back(Position{.number = number});
    const ir::Segment* const segments[] = {&stage.forward, &stage.backward, &stage.weight};
    for (size_t i = 0; i < position.calls.size(); ++i)
      for (const ir::Instr& instr : segments[i]->code) position.calls[i].push_back(call_of(instr, number));
  }
}

StageMemory::Call StageMemory::call_of(const ir::Instr& instr, int position) const {
  const int positions = stage_.replica.size();
  const auto buffer = [&](int b) -> const ir::Buffer& { return stage_.buffers[static_cast<size_t>(b)]; };
  Call call;
  if (instr.op) {
    double other = 1;
    for (const int b : instr.in)
      call.in.push_back(ir::local_type(buffer(b), position, positions, call.in.empty() ? &call.share : &other));
    for (const int b : instr.out) call.out.push_back(ir::local_type(buffer(b), position, positions, &other));
    return call;
  }
  call.by_tokens = std::ranges::count(buffer(instr.in[0]).type.shape.size, ir::kTokens) > 0;
  for (size_t pattern = 0; pattern < stage_.hosts.size(); ++pattern)
    for (int rank = 0; rank < positions; ++rank)
      call.scratch = std::max(call.scratch, ir::scratch_bytes(stage_, instr, pattern, rank, positions));
  return call;
}

Kept StageMemory::activations(const ir::CallSize& size) const {
  Kept most;
  for (const Position& position : positions_) {
    const Kept kept = Replay(*this, position, size).run();
    for (i64 Kept::*const bytes : {&Kept::stash, &Kept::later, &Kept::forward_peak, &Kept::backward_peak})
      most.*bytes = std::max(most.*bytes, kept.*bytes);
  }
  return most;
}

}  // namespace switchyard::planner
