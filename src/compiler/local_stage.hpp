// Sizes of a stage's tensors and workspaces at one position of its replica, prepared to be asked for many
// micro-batches.
#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/code.hpp"

namespace switchyard::compiler {

/// Refers to the stage.
class LocalStage {
 public:
  LocalStage(const ir::StageCode& stage, int position);
  /// As ir::local_bytes.
  i64 bytes(int buffer, const ir::Extent& extent) const;
  /// Of all buffers with this root.
  i64 root_bytes(int root, const ir::Extent& extent) const;
  /// Bytes that an instruction takes and drops; longest: tokens of the longest document. 0 for collectives.
  i64 workspace(ir::Pass pass, size_t instr, i64 tokens, i64 longest) const;
  /// Of all instructions of a pass; kept for the next time.
  const std::vector<i64>& workspaces(ir::Pass pass, i64 tokens, i64 longest) const;
  /// Of the rotary tables that an instruction needs; 0: none.
  i64 rotary_head_dim(ir::Pass pass, size_t instr) const {
    return calls_[static_cast<size_t>(pass)][instr].rotary_head_dim;
  }

  size_t buffers() const { return buffers_.size(); }
  size_t roots() const { return members_.size(); }

 private:
  struct Size {  // factor * (tokens of the position)^tokens * squared lengths^squared lengths
    i64 factor = 1;
    int tokens = 0, squared_lengths = 0;
  };
  struct Call {
    const ir::Operator* op = nullptr;
    std::vector<ir::Type> in, out;
    double share = 1;  // of the tokens
    i64 rotary_head_dim = 0;
  };
  static constexpr size_t kPasses = 4;

  Call call_of(const ir::StageCode& stage, const ir::Instr& instr, int position) const;

  int positions_;
  std::vector<Size> buffers_;
  std::vector<std::vector<int>> members_;  // of a root
  std::vector<Call> calls_[kPasses];
  mutable std::map<std::tuple<ir::Pass, i64, i64>, std::vector<i64>> workspaces_;  // pass, tokens, longest
};

/// Whether all tensors of a stage have the same local sizes at two positions.
bool same_sizes(const ir::StageCode& stage, int a, int b);

/// Each is made when it is first asked for; positions with the same sizes share one.
class LocalStages {
 public:
  const LocalStage& at(const ir::StageCode& stage, int position);

 private:
  std::map<std::pair<const ir::StageCode*, int>, LocalStage> made_;
  std::map<std::pair<const ir::StageCode*, int>, const LocalStage*> known_;
};

}  // namespace switchyard::compiler
