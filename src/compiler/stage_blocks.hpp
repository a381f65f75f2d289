// The blocks of memory in which a micro-batch's tensors lie on a stage, task after task. Which are taken and dropped
// doesn't depend on sizes: it is found once for all micro-batches whose tasks pass in the same order.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "ir/code.hpp"

namespace switchyard::compiler {

/// Changes that a task makes to a micro-batch's memory, one after the other. index: of a block (take, drop,
/// drop_shared): a buffer, or, behind all buffers, a root, whose members lie in it; of an instruction of the pass
/// (call: an operator takes and drops its workspace; begin, end: a collective takes and drops its scratch); of a value
/// in the graph (gradient: an instruction adds to it). drop_shared: another chunk of the rank owns the block, too.
/// tables: rotary tables are needed, for heads of `index` features.
struct BlockStep {
  enum class Kind { take, drop, drop_shared, tables, call, begin, end, gradient };
  Kind kind = Kind::take;
  int index = 0;
  bool operator==(const BlockStep&) const = default;
};

class StageBlocks {
 public:
  class Held;
  /// Changes that a task makes, and the memory that is held after it.
  struct Change {
    std::vector<BlockStep> steps;
    const Held* held = nullptr;
  };

  /// stage: it outlives this.
  explicit StageBlocks(const ir::StageCode& stage);
  ~StageBlocks();

  /// No blocks: before a micro-batch's first task.
  const Held& none() const { return *none_; }
  /// A buffer's memory is taken, for what is received.
  const Change& receive(const Held& held, int buffer);
  /// A buffer goes.
  const Change& release(const Held& held, int buffer);
  /// From now on another chunk of the rank owns the buffer's block, too.
  const Change& hand_over(const Held& held, int buffer);
  /// Another chunk's block becomes the buffer's.
  const Change& take_over(const Held& held, int buffer);
  /// A piece of a pass runs (SegmentRunner). apart: a collective on its own queue, which drops nothing until it ends.
  const Change& run(const Held& held, Pass pass, int piece, bool apart);
  /// The end of a collective that ran apart.
  const Change& end_apart(const Held& held, Pass pass, int piece);
  /// All that is left goes.
  const Change& drop_all(const Held& held);

  /// The block in which a buffer lies; -1: in none.
  int block_of(const Held& held, int buffer) const;
  /// The blocks of what the forward pass keeps for the backward pass, ascending.
  static const std::vector<int>& kept(const Held& held);

 private:
  enum class Event { receive, release, hand_over, take_over, run, run_apart, end_apart, drop_all };
  struct Key {
    Event event;
    int buffer = -1;
    Pass pass = Pass::F;
    int piece = ir::kWhole;
    auto operator<=>(const Key&) const = default;
  };
  class Tracer;
  template <class Trace>
  const Change& change(const Held& held, const Key& key, Trace trace);
  int root_block(int root) const { return static_cast<int>(stage_.buffers.size()) + root; }

  const ir::StageCode& stage_;
  std::unique_ptr<const Held> none_;
};

}  // namespace switchyard::compiler
