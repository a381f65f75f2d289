#include "compiler/recompute.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>

#include "base/errors.hpp"
#include "compiler/stage_builder.hpp"

namespace switchyard::compiler {
namespace {

class Cloning {
 public:
  Cloning(ir::StageCode& stage, config::Recompute policy) : stage_(stage), policy_(policy) {
    for (size_t i = 0; i < stage.forward.code.size(); ++i)
      for (const int b : stage.forward.code[i].out) producer_[b] = i;
    for (const ir::Instr& instr : stage.forward.code)
      for (const int b : instr.in)
        if (producer_.contains(b) && stage.forward.code[producer_.at(b)].unit != instr.unit) enters_layer_.insert(b);
  }

  void run() {
    std::vector<ir::Instr> backward = std::move(stage_.backward.code);
    stage_.backward.code.clear();
    for (ir::Instr& instr : backward) {
      for (int& b : instr.in) b = available(b, instr.pass);
      stage_.backward.code.push_back(std::move(instr));
    }
  }

 private:
  bool kept(int buffer) const {
    const ir::Instr& producer = stage_.forward.code[producer_.at(buffer)];
    if (policy_ == config::Recompute::full) return enters_layer_.contains(buffer) || buffer == stage_.act_out;
    if (policy_ == config::Recompute::none) return true;
    if (!producer.op) return !gathers(producer);
    if (policy_ == config::Recompute::gathers) return true;
    const auto output = static_cast<size_t>(std::ranges::find(producer.out, buffer) - producer.out.begin());
    return !producer.op->is_remade(output);
  }

  // Whether a reshard collects what is cut: its input is the smaller one to keep. Gathering sums again is not worth it.
  bool gathers(const ir::Instr& reshard) const {
    const layout::Layout &from = layout_of(reshard.in[0]), &to = layout_of(reshard.out[0]);
    return from.partial.empty() && parts(from) > parts(to);
  }
  const layout::Layout& layout_of(int buffer) const { return stage_.buffers[static_cast<size_t>(buffer)].layout; }
  i64 parts(const layout::Layout& layout) const {
    i64 parts = 1;
    for (const std::vector<int>& axes : layout.split)
      for (const int axis : axes) parts *= stage_.replica.axes[static_cast<size_t>(axis)].size;
    return parts;
  }

  // The buffer from which the backward pass reads `buffer`: itself if kept, else that of a clone made here.
  int available(int buffer, Pass pass) {
    if (!producer_.contains(buffer) || kept(buffer)) return buffer;
    if (const auto it = clone_.find(buffer); it != clone_.end()) return it->second;
    ir::Instr instr = stage_.forward.code[producer_.at(buffer)];
    instr.pass = pass;
    for (int& b : instr.in) b = available(b, pass);
    std::vector<int> originals = instr.out;
    for (int& b : instr.out) b = cloned(b);
    if (instr.op && !instr.op->adjacent_outputs().empty()) make_adjacent(stage_, instr.out);
    stage_.backward.code.push_back(instr);
    return clone_.at(buffer);
  }

  int cloned(int original) {
    ir::Buffer copy = stage_.buffers[static_cast<size_t>(original)];
    copy.name += " again";
    copy.root = -1;
    stage_.buffers.push_back(std::move(copy));
    return clone_[original] = static_cast<int>(stage_.buffers.size()) - 1;
  }

  ir::StageCode& stage_;
  config::Recompute policy_;
  std::map<int, size_t> producer_;  // forward instruction that makes a buffer
  std::set<int> enters_layer_;      // made in one layer, read in another
  std::map<int, int> clone_;
};

bool is_activation(const ir::StageCode& stage, int b) {
  return stage.buffers[static_cast<size_t>(b)].kind == ir::ValueKind::activation;
}

std::vector<size_t> order_of_ends(const ir::Segment& segment) {
  std::vector<size_t> ends;
  ir::walk(
      segment, [](size_t) {}, [&](size_t i) { ends.push_back(i); });
  return ends;
}

// The last reader or writer of an activation that ends drops it, unless it is needed beyond the segment.
void drop_after_last_use(const ir::StageCode& stage, ir::Segment& segment, const std::set<int>& outlives) {
  std::set<int> seen = outlives;
  const std::vector<size_t> ends = order_of_ends(segment);
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    ir::Instr& instr = segment.code[*end];
    instr.drop.clear();
    for (const auto* side : {&instr.in, &instr.out})
      for (const int b : *side)
        if (is_activation(stage, b) && seen.insert(b).second) instr.drop.push_back(b);
  }
}

// The instruction that drops the last member of a root drops the root.
void drop_roots(ir::StageCode& stage) {
  std::set<int> seen, seen_by_joined;
  for (ir::Segment* segment : {&stage.joined, &stage.weight, &stage.backward, &stage.forward}) {
    std::set<int>& dropped = segment == &stage.joined ? seen_by_joined : seen;
    const std::vector<size_t> ends = order_of_ends(*segment);
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      ir::Instr& instr = segment->code[*end];
      instr.drop_roots.clear();
      for (const int b : instr.drop)
        if (const int root = stage.buffers[static_cast<size_t>(b)].root; root >= 0 && dropped.insert(root).second)
          instr.drop_roots.push_back(root);
    }
  }
}

// Activations that these segments, one after the other, read and none of them makes. come: from elsewhere.
std::set<int> read_from_before(const ir::StageCode& stage, std::initializer_list<const ir::Segment*> segments,
                               std::set<int> come = {}) {
  std::set<int> read, made = std::move(come);
  for (const ir::Segment* segment : segments)
    for (const ir::Instr& instr : segment->code) {
      for (const int b : instr.in)
        if (is_activation(stage, b) && !made.contains(b)) read.insert(b);
      made.insert(instr.out.begin(), instr.out.end());
    }
  return read;
}

// Instructions that give both kinds of gradients, in halves.
void take_apart(ir::StageCode& stage) {
  std::vector<ir::Instr> code;
  for (ir::Instr& whole : stage.backward.code) {
    const ir::Halves halves = whole.op ? whole.op->halves() : ir::Halves{};
    if (!halves.inputs) {
      code.push_back(std::move(whole));
      continue;
    }
    std::vector<ir::Type> in;
    for (const int b : whole.in) in.push_back(stage.buffers[static_cast<size_t>(b)].type);
    const ir::Buffer &x = stage.buffers[static_cast<size_t>(whole.in[0])],
                     &weight = stage.buffers[static_cast<size_t>(whole.in[1])];
    ir::Buffer between{.name = weight.name + "'s rows",
                       .kind = ir::ValueKind::activation,
                       .type = halves.inputs->shape(in).back(),
                       .layout = x.layout,
                       .box = x.box};
    between.layout.split[1] = weight.layout.split[0];
    for (size_t position = 0; position < between.box.size(); ++position) {
      between.box[position].lo[1] = weight.box[position].lo[0];
      between.box[position].hi[1] = weight.box[position].hi[0];
    }
    ir::Instr inputs = whole, weights = whole;
    inputs.op = halves.inputs;
    weights.op = halves.weights;
    weights.pass = Pass::W;
    weights.out = {std::exchange(inputs.out.back(), static_cast<int>(stage.buffers.size()))};
    weights.in = {inputs.out.back(), whole.in[0]};
    stage.buffers.push_back(std::move(between));
    code.push_back(std::move(inputs));
    code.push_back(std::move(weights));
  }
  stage.backward.code = std::move(code);
}

}  // namespace

void recompute(ir::StageCode& stage, config::Recompute policy) { Cloning(stage, policy).run(); }

void split_gradients(ir::StageCode& stage) {
  stage.weight.pass = Pass::W;
  stage.joined = stage.backward;
  stage.joined.pass = Pass::BW;
  take_apart(stage);
  std::set<int> read;  // by what stays
  std::vector<ir::Instr> stays, moves;
  for (size_t i = stage.backward.code.size(); i-- > 0;) {
    ir::Instr& instr = stage.backward.code[i];
    const bool stay = instr.pass != Pass::W || std::ranges::any_of(instr.out, [&](int b) { return read.contains(b); });
    if (stay) read.insert(instr.in.begin(), instr.in.end());
    (stay ? stays : moves).push_back(std::move(instr));
  }
  stage.backward.code.assign(std::make_move_iterator(stays.rbegin()), std::make_move_iterator(stays.rend()));
  stage.weight.code.assign(std::make_move_iterator(moves.rbegin()), std::make_move_iterator(moves.rend()));
}

void annotate_lifetimes(ir::StageCode& stage) {
  const std::set<int> read_last = read_from_before(stage, {&stage.weight});
  const std::set<int> read_later = read_from_before(stage, {&stage.backward, &stage.weight}, {stage.grad_in});
  stage.stash.assign(read_later.begin(), read_later.end());
  std::set<int> beyond_forward = read_later, beyond_backward = read_last;
  beyond_forward.insert({stage.act_out, stage.logits, stage.loss});
  beyond_backward.insert({stage.grad_out, stage.loss});
  drop_after_last_use(stage, stage.forward, beyond_forward);
  drop_after_last_use(stage, stage.backward, beyond_backward);
  drop_after_last_use(stage, stage.weight, {stage.loss});
  drop_after_last_use(stage, stage.joined, {stage.grad_out, stage.loss});
  drop_roots(stage);
}

}  // namespace switchyard::compiler
