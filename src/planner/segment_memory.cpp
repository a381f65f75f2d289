#include "planner/segment_memory.hpp"

#include <algorithm>
#include <utility>

namespace switchyard::planner {

// Heads that are not divided evenly, and what is computed with them, differ from position to position.
StageMemory::StageMemory(const ir::StageCode& stage) : stage_(stage) {
  std::vector<int> kinds;
  for (int position = 0; position < stage.replica.size(); ++position) {
    if (std::ranges::any_of(kinds, [&](int kind) { return compiler::same_sizes(stage, kind, position); })) continue;
    kinds.push_back(position);
    positions_.emplace_back(stage, position);
  }
  for (const Pass pass : {Pass::F, Pass::B, Pass::W, Pass::BW})
    for (std::vector<Scratch>& of_pass = scratch_[pass]; const ir::Instr& instr : stage.segment(pass).code)
      of_pass.push_back(scratch_of(instr));
  trace();
}

void StageMemory::trace() {
  compiler::StageBlocks blocks(stage_);
  const compiler::StageBlocks::Held* held = &blocks.none();
  const auto follow = [&](std::vector<compiler::BlockStep>& steps, const compiler::StageBlocks::Change& change) {
    steps.insert(steps.end(), change.steps.begin(), change.steps.end());
    held = change.held;
  };
  if (stage_.act_in >= 0) follow(received_, blocks.receive(*held, stage_.act_in));
  follow(steps_[Pass::F], blocks.run(*held, Pass::F, ir::kWhole, false));
  if (stage_.act_out >= 0 && std::ranges::count(stage_.stash, stage_.act_out) == 0)
    follow(sent_, blocks.release(*held, stage_.act_out));
  if (stage_.grad_in >= 0) follow(gradient_, blocks.receive(*held, stage_.grad_in));
  const compiler::StageBlocks::Held* before = held;
  follow(steps_[Pass::B], blocks.run(*held, Pass::B, ir::kWhole, false));
  follow(steps_[Pass::W], blocks.run(*held, Pass::W, ir::kWhole, false));
  held = before;
  if (stage_.joins_gradients()) follow(steps_[Pass::BW], blocks.run(*held, Pass::BW, ir::kWhole, false));
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
    const Kept kept = activations(size, position);
    for (i64 Kept::*const bytes : {&Kept::stash, &Kept::later, &Kept::forward_peak, &Kept::backward_peak})
      most.*bytes = std::max(most.*bytes, kept.*bytes);
  }
  return most;
}

// Micro-batches are full of the longest documents.
Kept StageMemory::activations(const ir::CallSize& size, const compiler::LocalStage& position) const {
  using Kind = compiler::BlockStep::Kind;
  const std::vector<i64> bytes = position.block_bytes({size.tokens, size.tokens * std::min(size.tokens, size.longest)});
  const i64 unit = ir::token_unit(stage_.replica, size.tokens);
  i64 now = 0;
  const auto follow = [&](const std::vector<compiler::BlockStep>& steps, Pass pass) {
    const std::vector<Scratch>& scratch = scratch_.at(pass);
    i64 peak = now;
    for (const auto& [kind, index] : steps) {
      const auto i = static_cast<size_t>(index);
      if (kind == Kind::take)
        now += bytes[i];
      else if (kind == Kind::drop)
        now -= bytes[i];
      else if (kind == Kind::call)
        peak = std::max(peak, now + position.workspace(pass, i, size));
      else if (kind == Kind::begin)
        peak = std::max(peak, now += scratch[i].bytes * (scratch[i].by_tokens ? unit : 1));
      else if (kind == Kind::end)
        now -= scratch[i].bytes * (scratch[i].by_tokens ? unit : 1);
    }
    return peak;
  };
  Kept kept;
  follow(received_, Pass::F);
  kept.forward_peak = follow(steps_.at(Pass::F), Pass::F);
  follow(sent_, Pass::F);
  kept.stash = now;
  follow(gradient_, Pass::B);
  const i64 before = now;
  kept.backward_peak = follow(steps_.at(Pass::B), Pass::B);
  if (stage_.weight.code.empty()) return kept;
  kept.later = now;
  kept.backward_peak = std::max(kept.backward_peak, follow(steps_.at(Pass::W), Pass::W));
  now = before;
  if (stage_.joins_gradients())
    kept.backward_peak = std::max(kept.backward_peak, follow(steps_.at(Pass::BW), Pass::BW));
  return kept;
}

}  // namespace switchyard::planner
