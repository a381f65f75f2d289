#include "planner/segment_memory.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::planner {
namespace {

// Buffers of a root share one block, which is there from the first to the last of them.
class Replay {
 public:
  Replay(const ir::StageCode& stage, const ir::CallSize& size, int position)
      : stage_(stage),
        position_(position),
        extent_{size.tokens, size.tokens * std::min(size.tokens, size.longest)},
        size_(size),
        here_(stage.buffers.size(), false) {
    for (const ir::Buffer& buffer : stage.buffers) {
      bytes_.push_back(ir::local_bytes(buffer, position, stage.replica.size(), extent_));
      if (buffer.root >= 0) roots_[buffer.root].bytes += bytes_.back();
    }
  }

  i64 run(const ir::Segment& segment) {
    peak_ = now_;
    const auto start = [&](size_t i) {
      const ir::Instr& instr = segment.code[i];
      for (const int b : instr.out)
        if (buffer(b).kind != ir::ValueKind::gradient) take(b);
      if (!instr.op) now_ += scratch(instr);
      peak_ = std::max(peak_, now_ + (instr.op ? workspace(instr) : 0));
    };
    const auto end = [&](size_t i) {
      const ir::Instr& instr = segment.code[i];
      if (!instr.op) now_ -= scratch(instr);
      for (const int b : instr.drop) release(b);
      for (const int root : instr.drop_roots) now_ -= roots_[root].bytes;
    };
    ir::walk(segment, start, end);
    return peak_;
  }
  void take(int b) {
    if (b < 0 || here_[static_cast<size_t>(b)]) return;
    here_[static_cast<size_t>(b)] = true;
    const int root = buffer(b).root;
    if (root < 0)
      now_ += bytes_[static_cast<size_t>(b)];
    else if (!std::exchange(roots_[root].here, true))
      now_ += roots_[root].bytes;
  }
  void release(int b) {
    if (b < 0 || !here_[static_cast<size_t>(b)]) return;
    here_[static_cast<size_t>(b)] = false;
    if (buffer(b).root < 0) now_ -= bytes_[static_cast<size_t>(b)];
  }
  i64 now() const { return now_; }

 private:
  const ir::Buffer& buffer(int b) const { return stage_.buffers[static_cast<size_t>(b)]; }
  i64 workspace(const ir::Instr& instr) const {
    std::vector<ir::Type> in, out;
    double share = 1, other = 1;
    for (const int b : instr.in)
      in.push_back(ir::local_type(buffer(b), position_, stage_.replica.size(), in.empty() ? &share : &other));
    for (const int b : instr.out) out.push_back(ir::local_type(buffer(b), position_, stage_.replica.size(), &other));
    ir::CallSize local = size_;
    local.tokens = static_cast<i64>(share * static_cast<double>(size_.tokens));
    return instr.op->workspace(in, out, local);
  }

  // Bytes for the sums that a rank makes for others, on the position and in the pattern with the most.
  i64 scratch(const ir::Instr& instr) const {
    i64 most = 0;
    for (size_t pattern = 0; pattern < stage_.hosts.size(); ++pattern)
      for (int position = 0; position < stage_.replica.size(); ++position)
        most = std::max(most, ir::scratch_bytes(stage_, instr, pattern, position, extent_.tokens));
    return most;
  }

  const ir::StageCode& stage_;
  int position_;
  ir::Extent extent_;  // micro-batches full of the longest documents
  ir::CallSize size_;
  i64 now_ = 0, peak_ = 0;
  struct Root {
    i64 bytes = 0;
    bool here = false;
  };
  std::vector<bool> here_;
  std::vector<i64> bytes_;
  std::map<int, Root> roots_;
};

Kept activations_on(const ir::StageCode& stage, const ir::CallSize& size, int position) {
  Kept kept;
  Replay replay(stage, size, position);
  replay.take(stage.act_in);
  kept.forward_peak = replay.run(stage.forward);
  if (std::ranges::count(stage.stash, stage.act_out) == 0) replay.release(stage.act_out);
  kept.stash = replay.now();
  replay.take(stage.grad_in);
  kept.backward_peak = std::max(replay.now(), replay.run(stage.backward));
  if (!stage.weight.code.empty()) {
    kept.later = replay.now();
    kept.backward_peak = std::max(kept.backward_peak, replay.run(stage.weight));
  }
  return kept;
}

}  // namespace

// Heads that are not divided evenly, and what is computed with them, differ from position to position.
Kept activations_of(const ir::StageCode& stage, const ir::CallSize& size) {
  const auto like_earlier = [&](int position) {
    for (int earlier = 0; earlier < position; ++earlier)
      if (std::ranges::all_of(stage.buffers,
                              [&](const ir::Buffer& buffer) { return ir::same_sizes(buffer, earlier, position); }))
        return true;
    return false;
  };
  Kept most = activations_on(stage, size, 0);
  for (int position = 1; position < stage.replica.size(); ++position) {
    if (like_earlier(position)) continue;
    const Kept kept = activations_on(stage, size, position);
    for (i64 Kept::*const bytes : {&Kept::stash, &Kept::later, &Kept::forward_peak, &Kept::backward_peak})
      most.*bytes = std::max(most.*bytes, kept.*bytes);
  }
  return most;
}

}  // namespace switchyard::planner
