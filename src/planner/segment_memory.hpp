// Activations of a stage, replayed through its segments.
#pragma once

#include <array>
#include <vector>

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
  /// compiler/memory, but without the rounding of allocations.
  Kept activations(const ir::CallSize& size) const;

 private:
  /// An instruction on a position. share: of the first operand in the tokens of a replica. scratch: bytes of the sums
  /// that a rank makes for others, on the position and in the pattern with the most, for as many tokens as the replica
  /// has ranks, or, if by_tokens is false, for any number.
  struct Call {
    std::vector<ir::Type> in{}, out{};
    double share = 1;
    i64 scratch = 0;
    bool by_tokens = false;
  };
  struct Position {
    int number = 0;
    std::array<std::vector<Call>, 3> calls{};  // of the forward, backward and weight segment
  };
  class Replay;

  Call call_of(const ir::Instr& instr, int position) const;

  const ir::StageCode& stage_;
  size_t roots_ = 0;                 // their numbers are less
  std::vector<Position> positions_;  // one of each kind
};

}  // namespace switchyard::planner
