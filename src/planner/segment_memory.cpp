#include "planner/segment_memory.hpp"

#include <algorithm>
#include <utility>

namespace switchyard::planner {

// Buffers of a root share one block, which is there from the first to the last of them.
class StageMemory::Replay {
 public:
  Replay(const StageMemory& memory, const compiler::LocalStage& local, const ir::CallSize& size)
      : memory_(memory),
        stage_(memory.stage_),
        local_(local),
        extent_{size.tokens, size.tokens * std::min(size.tokens, size.longest)},
        size_(size),
        here_(local.buffers(), false),
        root_is_here_(local.roots(), false) {}

  Kept run() {
    Kept kept;
    take(stage_.act_in);
    kept.forward_peak = run(Pass::F);
    if (std::ranges::count(stage_.stash, stage_.act_out) == 0) release(stage_.act_out);
    kept.stash = now_;
    take(stage_.grad_in);
    kept.backward_peak = std::max(now_, run(Pass::BW));
    if (!stage_.weight.code.empty()) {
      kept.later = now_;
      kept.backward_peak = std::max(kept.backward_peak, run(Pass::W));
    }
    return kept;
  }

 private:
  i64 run(Pass pass) {
    const ir::Segment& segment = stage_.segment(pass);
    const std::vector<Scratch>& scratch = memory_.scratch_.at(pass);
    const auto bytes_of = [&](size_t i) {
      return scratch[i].by_tokens ? scratch[i].bytes * ir::token_unit(stage_.replica, extent_.tokens)
                                  : scratch[i].bytes;
    };
    i64 peak = now_;
    const auto start = [&](size_t i) {
      for (const int b : segment.code[i].out)
        if (buffer(b).kind != ir::ValueKind::gradient) take(b);
      now_ += bytes_of(i);
      peak = std::max(peak, now_ + local_.workspace(pass, i, size_));
    };
    const auto end = [&](size_t i) {
      now_ -= bytes_of(i);
      for (const int b : segment.code[i].drop) release(b);
      for (const int root : segment.code[i].drop_roots) now_ -= local_.root_bytes(root, extent_);
    };
    ir::walk(segment, start, end);
    return peak;
  }

  void take(int b) {
    if (b < 0 || here_[static_cast<size_t>(b)]) return;
    here_[static_cast<size_t>(b)] = true;
    const int root = buffer(b).root;
    if (root < 0) {
      now_ += local_.bytes(b, extent_);
    } else if (!root_is_here_[static_cast<size_t>(root)]) {
      root_is_here_[static_cast<size_t>(root)] = true;
      now_ += local_.root_bytes(root, extent_);
    }
  }
  void release(int b) {
    if (b < 0 || !here_[static_cast<size_t>(b)]) return;
    here_[static_cast<size_t>(b)] = false;
    if (buffer(b).root < 0) now_ -= local_.bytes(b, extent_);
  }

  const ir::Buffer& buffer(int b) const { return stage_.buffers[static_cast<size_t>(b)]; }

  const StageMemory& memory_;
  const ir::StageCode& stage_;
  const compiler::LocalStage& local_;
  ir::Extent extent_;  // micro-batches full of the longest documents
  ir::CallSize size_;
  i64 now_ = 0;
  std::vector<bool> here_, root_is_here_;
};

// Heads that are not divided evenly, and what is computed with them, differ from position to position.
StageMemory::StageMemory(const ir::StageCode& stage) : stage_(stage) {
  std::vector<int> kinds;
  for (int position = 0; position < stage.replica.size(); ++position) {
    if (std::ranges::any_of(kinds, [&](int kind) { return compiler::same_sizes(stage, kind, position); })) continue;
    kinds.push_back(position);
    positions_.emplace_back(stage, position);
  }
  for (const Pass pass : {Pass::F, Pass::BW, Pass::W})
    for (std::vector<Scratch>& of_pass = scratch_[pass]; const ir::Instr& instr : stage.segment(pass).code)
      of_pass.push_back(scratch_of(instr));
}

StageMemory::Scratch StageMemory::scratch_of(const ir::Instr& instr) const {
  if (instr.op) return {};
  const std::vector<i64>& whole = stage_.buffers[static_cast<size_t>(instr.in[0])].type.shape.size;
  Scratch scratch{.by_tokens = std::ranges::count(whole, ir::kTokens) > 0};
  const int positions = stage_.replica.size();  // so many tokens are one unit
  for (size_t pattern = 0; pattern < stage_.hosts.size(); ++pattern)
    for (int position = 0; position < positions; ++position)
      scratch.bytes = std::max(scratch.bytes, ir::scratch_bytes(stage_, instr, pattern, position, positions));
  return scratch;
}

Kept StageMemory::activations(const ir::CallSize& size) const {
  Kept most;
  for (const compiler::LocalStage& position : positions_) {
    const Kept kept = Replay(*this, position, size).run();
    for (i64 Kept::*const bytes : {&Kept::stash, &Kept::later, &Kept::forward_peak, &Kept::backward_peak})
      most.*bytes = std::max(most.*bytes, kept.*bytes);
  }
  return most;
}

}  // namespace switchyard::planner
