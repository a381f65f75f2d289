#include "compiler/stage_blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace switchyard::compiler {

// Blocks by buffers, behind them those of roots.
class StageBlocks::Held {
 public:
  explicit Held(const ir::StageCode& stage)
      : slot(stage.buffers.size(), Slot::none),
        root(roots_of(stage), false),
        owners(slot.size() + root.size(), 0),
        shared(owners.size(), false) {}
  Held(const Held& other) : slot(other.slot), root(other.root), owners(other.owners), shared(other.shared) {}

  /// Place of a buffer: in a block of its own or of its root; in a block that another chunk made.
  enum class Slot : std::uint8_t { none, own, taken_over };
  std::vector<Slot> slot;
  std::vector<bool> root;    // whether the root keeps its block until its last member goes
  std::vector<int> owners;   // buffers and the root that keep a block; 0: it isn't there
  std::vector<bool> shared;  // with another chunk
  std::vector<int> kept;     // for the backward pass
  mutable std::map<Key, std::pair<Change, std::unique_ptr<Held>>> changes;

 private:
  static size_t roots_of(const ir::StageCode& stage) {
    int roots = 0;
    for (const ir::Buffer& buffer : stage.buffers) roots = std::max(roots, buffer.root + 1);
    return static_cast<size_t>(roots);
  }
};

// Makes one change.
class StageBlocks::Tracer {
 public:
  Tracer(const StageBlocks& blocks, Held& held, std::vector<BlockStep>& steps)
      : blocks_(blocks), stage_(blocks.stage_), held_(held), steps_(steps) {}

  // Members of a root share one block, as in SegmentRunner::allocate.
  void take(int buffer) {
    if (slot(buffer) != Held::Slot::none) return;
    slot(buffer) = Held::Slot::own;
    const int root = stage_.buffers[static_cast<size_t>(buffer)].root;
    if (root < 0) return own(buffer);
    if (!held_.root[static_cast<size_t>(root)]) own(root_block(root));
    held_.root[static_cast<size_t>(root)] = true;
    own(root_block(root));
  }
  void release(int buffer) {
    const int block = blocks_.block_of(held_, buffer);
    if (block < 0) return;
    slot(buffer) = Held::Slot::none;
    disown(block);
  }
  void hand_over(int buffer) { held_.shared[static_cast<size_t>(blocks_.block_of(held_, buffer))] = true; }
  void take_over(int buffer) {
    slot(buffer) = Held::Slot::taken_over;
    owners(buffer) = 1;
    held_.shared[static_cast<size_t>(buffer)] = true;
  }
  void run(Pass pass, int piece, bool apart) {
    bool started = false;
    const auto start = [&](size_t i) {
      started = true;
      const ir::Instr& instr = stage_.segment(pass).code[i];
      for (const int b : instr.out)
        if (const ir::Buffer& buffer = stage_.buffers[static_cast<size_t>(b)]; buffer.kind == ir::ValueKind::gradient)
          step(BlockStep::Kind::gradient, buffer.value);
        else
          take(b);
      if (const i64 head_dim = instr.op ? instr.op->rotary_head_dim() : 0)
        step(BlockStep::Kind::tables, static_cast<int>(head_dim));
      step(instr.op ? BlockStep::Kind::call : BlockStep::Kind::begin, static_cast<int>(i));
    };
    ir::walk(stage_.segment(pass), piece, start, [&](size_t i) {
      if (!apart || !started) end(pass, i);
    });
  }
  void end_apart(Pass pass, int piece) {
    bool started = false;
    ir::walk(
        stage_.segment(pass), piece, [&](size_t) { started = true; },
        [&](size_t i) {
          if (started) end(pass, i);
        });
  }
  void drop_all() {
    for (int block = 0; std::cmp_less(block, held_.owners.size()); ++block)
      if (owners(block) > 0) drop(block);
  }

 private:
  void end(Pass pass, size_t i) {
    const ir::Instr& instr = stage_.segment(pass).code[i];
    if (!instr.op) step(BlockStep::Kind::end, static_cast<int>(i));
    for (const int b : instr.drop) release(b);
    for (const int root : instr.drop_roots) {
      if (held_.root[static_cast<size_t>(root)]) disown(root_block(root));
      held_.root[static_cast<size_t>(root)] = false;
    }
  }
  void own(int block) {
    if (owners(block)++ == 0) step(BlockStep::Kind::take, block);
  }
  void disown(int block) {
    if (--owners(block) == 0) drop(block);
  }
  void drop(int block) {
    const bool shared = held_.shared[static_cast<size_t>(block)];
    held_.shared[static_cast<size_t>(block)] = false;
    step(shared ? BlockStep::Kind::drop_shared : BlockStep::Kind::drop, block);
  }
  void step(BlockStep::Kind kind, int index) { steps_.push_back({kind, index}); }

  Held::Slot& slot(int buffer) { return held_.slot[static_cast<size_t>(buffer)]; }
  int& owners(int block) { return held_.owners[static_cast<size_t>(block)]; }
  int root_block(int root) const { return blocks_.root_block(root); }

  const StageBlocks& blocks_;
  const ir::StageCode& stage_;
  Held& held_;
  std::vector<BlockStep>& steps_;
};

StageBlocks::StageBlocks(const ir::StageCode& stage) : stage_(stage), none_(std::make_unique<const Held>(stage)) {}
StageBlocks::~StageBlocks() = default;

template <class Trace>
const StageBlocks::Change& StageBlocks::change(const Held& held, const Key& key, Trace trace) {
  const auto [it, fresh] = held.changes.try_emplace(key);
  auto& [change, after] = it->second;
  if (fresh) {
    after = std::make_unique<Held>(held);
    trace(Tracer(*this, *after, change.steps));
    after->kept.clear();
    for (const int buffer : stage_.stash)
      if (const int block = block_of(*after, buffer); block >= 0) after->kept.push_back(block);
    std::ranges::sort(after->kept);
    after->kept.erase(std::unique(after->kept.begin(), after->kept.end()), after->kept.end());
    change.held = after.get();
  }
  return change;
}

const StageBlocks::Change& StageBlocks::receive(const Held& held, int buffer) {
  return change(held, {.event = Event::receive, .buffer = buffer}, [&](Tracer tracer) { tracer.take(buffer); });
}
const StageBlocks::Change& StageBlocks::release(const Held& held, int buffer) {
  return change(held, {.event = Event::release, .buffer = buffer}, [&](Tracer tracer) { tracer.release(buffer); });
}
const StageBlocks::Change& StageBlocks::hand_over(const Held& held, int buffer) {
  return change(held, {.event = Event::hand_over, .buffer = buffer}, [&](Tracer tracer) { tracer.hand_over(buffer); });
}
const StageBlocks::Change& StageBlocks::take_over(const Held& held, int buffer) {
  return change(held, {.event = Event::take_over, .buffer = buffer}, [&](Tracer tracer) { tracer.take_over(buffer); });
}
const StageBlocks::Change& StageBlocks::run(const Held& held, Pass pass, int piece, bool apart) {
  return change(held, {.event = apart ? Event::run_apart : Event::run, .pass = pass, .piece = piece},
                [&](Tracer tracer) { tracer.run(pass, piece, apart); });
}
const StageBlocks::Change& StageBlocks::end_apart(const Held& held, Pass pass, int piece) {
  return change(held, {.event = Event::end_apart, .pass = pass, .piece = piece},
                [&](Tracer tracer) { tracer.end_apart(pass, piece); });
}
const StageBlocks::Change& StageBlocks::drop_all(const Held& held) {
  return change(held, {.event = Event::drop_all}, [&](Tracer tracer) { tracer.drop_all(); });
}

int StageBlocks::block_of(const Held& held, int buffer) const {
  const Held::Slot slot = held.slot[static_cast<size_t>(buffer)];
  if (slot == Held::Slot::none) return -1;
  const int root = stage_.buffers[static_cast<size_t>(buffer)].root;
  return slot == Held::Slot::taken_over || root < 0 ? buffer : root_block(root);
}

const std::vector<int>& StageBlocks::kept(const Held& held) { return held.kept; }

}  // namespace switchyard::compiler
