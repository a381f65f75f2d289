// Activations of a stage, replayed through its segments.
#pragma once

#include <map>
#include <vector>

#include "compiler/local_stage.hpp"
#include "compiler/stage_blocks.hpp"
#include "ir/code.hpp"

namespace switchyard::planner {

/// Bytes on the position with the most. Activations: kept from the forward pass to the next one, from that to the
/// gradients of weights if they come apart, and the most that a segment has besides those of other micro-batches; of T
/// tokens, in documents of at most `longest`.
struct Kept {
  i64 stash = 0, later = 0, forward_peak = 0, backward_peak = 0;
  i64 most() const { return stash > later ? stash : later; }
};

/// A stage's activations for any size of its micro-batches. What depends on the stage alone is found once.
class StageMemory {
 public:
  /// stage: it outlives this.
  explicit StageMemory(const ir::StageCode& stage);
  /// Activations of a micro-batch of size.tokens in documents of at most size.longest, on the position with the most:
  /// including kernels' temporaries, and keys that come together from several ring ranks, counted as in
  /// compiler/memory, but without the rounding of allocations. Any thread.
  Kept activations(const ir::CallSize& size) const;

 private:
  /// Bytes of the sums that a rank makes for others in a reshard, on the position and in the pattern with the most: for
  /// each token_unit, or, if by_tokens is false, for any number of tokens.
  struct Scratch {
    i64 bytes = 0;
    bool by_tokens = false;
  };

  void trace();
  Kept activations(const ir::CallSize& size, const compiler::LocalStage& position) const;
  Scratch scratch_of(const ir::Instr& instr) const;

  const ir::StageCode& stage_;
  std::vector<compiler::LocalStage> positions_;   // one of each kind
  std::map<Pass, std::vector<Scratch>> scratch_;  // by instruction
  // What a micro-batch does: it is received, runs, goes when it is sent; its gradient is received.
  std::vector<compiler::BlockStep> received_, sent_, gradient_;
  std::map<Pass, std::vector<compiler::BlockStep>> steps_;
};

}  // namespace switchyard::planner
