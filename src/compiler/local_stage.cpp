#include "compiler/local_stage.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::compiler {

LocalStage::LocalStage(const ir::StageCode& stage, int position) : positions_(stage.replica.size()) {
  for (const ir::Buffer& buffer : stage.buffers) {
    const layout::Box& box = buffer.box[static_cast<size_t>(position)];
    Size size{.factor = size_of(buffer.type.dtype)};
    for (int d = 0; d < box.dims; ++d) {
      const i64 whole = buffer.type.shape.size[static_cast<size_t>(d)];
      if (whole == ir::kSquaredLengths)
        ++size.squared_lengths;
      else
        size.factor *= box.size(d);
      if (whole == ir::kTokens) ++size.tokens;
    }
    if (buffer.root >= 0) {
      members_.resize(std::max(members_.size(), static_cast<size_t>(buffer.root) + 1));
      members_[static_cast<size_t>(buffer.root)].push_back(static_cast<int>(buffers_.size()));
    }
    buffers_.push_back(size);
  }
  for (const Pass pass : {Pass::F, Pass::B, Pass::W, Pass::BW})
    for (const ir::Instr& instr : stage.segment(pass).code)
      calls_[static_cast<size_t>(pass)].push_back(call_of(stage, instr, position));
}

LocalStage::Call LocalStage::call_of(const ir::StageCode& stage, const ir::Instr& instr, int position) const {
  Call call;
  call.op = instr.op.get();
  if (!call.op) return call;
  double other = 1;
  const auto local = [&](int b, double* share) {
    return ir::local_type(stage.buffers[static_cast<size_t>(b)], position, positions_, share);
  };
  for (const int b : instr.in) call.in.push_back(local(b, call.in.empty() ? &call.share : &other));
  for (const int b : instr.out) call.out.push_back(local(b, &other));
  return call;
}

std::vector<i64> LocalStage::block_bytes(const ir::Extent& extent) const {
  std::vector<i64> all;
  all.reserve(buffers_.size() + members_.size());
  const i64 unit = ir::token_unit(positions_, extent.tokens);
  for (const Size& size : buffers_) {
    i64& bytes = all.emplace_back(size.factor);
    for (int i = 0; i < size.tokens; ++i) bytes *= unit;
    for (int i = 0; i < size.squared_lengths; ++i) bytes *= extent.squared_lengths;
  }
  for (const std::vector<int>& members : members_) {
    i64 total = 0;
    for (const int member : members) total += all[static_cast<size_t>(member)];
    all.push_back(total);
  }
  return all;
}

const std::vector<i64>& LocalStage::known_block_bytes(const ir::Extent& extent) const {
  const auto [it, fresh] = block_bytes_.try_emplace({extent.tokens, extent.squared_lengths});
  if (fresh) it->second = block_bytes(extent);
  return it->second;
}

i64 LocalStage::workspace(Pass pass, size_t instr, const ir::CallSize& size) const {
  const Call& call = calls_[static_cast<size_t>(pass)][instr];
  if (!call.op) return 0;
  ir::CallSize local = size;
  local.tokens = static_cast<i64>(call.share * static_cast<double>(size.tokens));
  return call.op->workspace(call.in, call.out, local);
}

const std::vector<i64>& LocalStage::workspaces(Pass pass, const ir::CallSize& size) const {
  const auto [it, fresh] = workspaces_.try_emplace({pass, size});
  if (fresh)
    for (size_t i = 0; i < calls_[static_cast<size_t>(pass)].size(); ++i)
      it->second.push_back(workspace(pass, i, size));
  return it->second;
}

bool same_sizes(const ir::StageCode& stage, int a, int b) {
  return std::ranges::all_of(stage.buffers, [&](const ir::Buffer& buffer) { return ir::same_sizes(buffer, a, b); });
}

const LocalStage& LocalStages::at(const ir::StageCode& stage, int position) {
  const LocalStage*& known = known_[{&stage, position}];
  if (known) return *known;
  int first = 0;
  while (!same_sizes(stage, first, position)) ++first;
  return *(known = &made_.try_emplace({&stage, first}, stage, first).first->second);
}

}  // namespace switchyard::compiler
