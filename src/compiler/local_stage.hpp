// Sizes of a stage's tensors and workspaces at one position of its replica, in a form that is quick to evaluate for
// many micro-batches.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "compiler/stage_blocks.hpp"
#include "ir/code.hpp"

namespace switchyard::compiler {

/// Keeps a reference to the operators of the stage, which must outlive it.
class LocalStage {
 public:
  LocalStage(const ir::StageCode& stage, int position);
  /// Bytes of all buffers, as ir::local_bytes, and behind them of all roots: of all their members.
  std::vector<i64> block_bytes(const ir::Extent& extent) const;
  /// The same, cached: by one thread at a time.
  const std::vector<i64>& known_block_bytes(const ir::Extent& extent) const;
  /// Bytes that an instruction allocates and frees while it runs on a micro-batch; size.tokens: of all positions. 0 for
  /// collectives.
  i64 workspace(Pass pass, size_t instr, const ir::CallSize& size) const;
  /// Workspaces of all instructions of a pass, cached: by one thread at a time.
  const std::vector<i64>& workspaces(Pass pass, const ir::CallSize& size) const;

 private:
  struct Size {  // factor * (tokens of the position)^tokens * squared lengths^squared lengths
    i64 factor = 1;
    int tokens = 0, squared_lengths = 0;
  };
  struct Call {
    const ir::Operator* op = nullptr;
    std::vector<ir::Type> in, out;
    double share = 1;  // share of the tokens
  };
  static constexpr size_t kPasses = 4;

  Call call_of(const ir::StageCode& stage, const ir::Instr& instr, int position) const;

  int positions_;
  std::vector<Size> buffers_;
  std::vector<std::vector<int>> members_;  // by root
  std::vector<Call> calls_[kPasses];
  mutable std::map<std::pair<Pass, ir::CallSize>, std::vector<i64>> workspaces_;
  mutable std::map<std::pair<i64, i64>, std::vector<i64>> block_bytes_;  // by tokens and squared lengths
};

/// Whether all tensors of a stage have the same local sizes at two positions.
bool same_sizes(const ir::StageCode& stage, int a, int b);

/// Stages by position, made when first used; positions with the same sizes share one, and all of them their blocks.
class LocalStages {
 public:
  const LocalStage& at(const ir::StageCode& stage, int position);
  StageBlocks& blocks(const ir::StageCode& stage) { return blocks_.try_emplace(&stage, stage).first->second; }

 private:
  std::map<std::pair<const ir::StageCode*, int>, LocalStage> made_;
  std::map<std::pair<const ir::StageCode*, int>, const LocalStage*> known_;
  std::map<const ir::StageCode*, StageBlocks> blocks_;
};

}  // namespace switchyard::compiler
