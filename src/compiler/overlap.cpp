#include "compiler/overlap.hpp"

#include <algorithm>

namespace switchyard::compiler {
namespace {

bool is_collective(const ir::Instr& instr) { return instr.queue == ir::Queue::collective; }

bool share(const std::vector<int>& a, const std::vector<int>& b) {
  return std::ranges::any_of(a, [&](int buffer) { return std::ranges::find(b, buffer) != b.end(); });
}

// Whether an instruction reads or overwrites what the collective makes, or overwrites what it reads.
bool conflict(const ir::Instr& collective, const ir::Instr& instr) {
  return share(collective.out, instr.in) || share(collective.out, instr.out) || share(collective.in, instr.out);
}

bool is_product(const ir::StageCode& stage, const ir::Instr& instr) {
  const ir::Cost cost = ir::local_cost(stage, instr, 0);
  return cost.narrowest > 0 || cost.flops_per_pair > 0 || cost.flops_per_square > 0;
}

// The place at which a collective at the end of the code starts. It overtakes collectives whose input is made later.
size_t start_of(const ir::StageCode& stage, const std::vector<ir::Instr>& code, const ir::Instr& collective) {
  size_t before_product = code.size(), place = code.size();
  for (; place > 0; --place) {
    const ir::Instr& ahead = code[place - 1];
    if (share(ahead.out, collective.in)) {
      while (place < code.size() && is_collective(code[place]) && share(ahead.out, code[place].in)) ++place;
      return place;
    }
    if (ahead.unit != collective.unit || conflict(collective, ahead)) break;
    if (before_product == code.size() && !is_collective(ahead) && is_product(stage, ahead)) before_product = place - 1;
  }
  const auto makes_input = [&](const ir::Instr& instr) {
    return instr.unit == collective.unit && share(instr.out, collective.in);
  };
  return std::any_of(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(place), makes_input) ? place
                                                                                                   : before_product;
}

void start_early(const ir::StageCode& stage, ir::Segment& segment) {
  std::vector<ir::Instr> code;
  for (ir::Instr& instr : segment.code) {
    const size_t place = is_collective(instr) ? start_of(stage, code, instr) : code.size();
    code.insert(code.begin() + static_cast<std::ptrdiff_t>(place), std::move(instr));
  }
  segment.code = std::move(code);
}

// Collectives end in their order: who waits for one waits for those ahead of it, too.
void wait_late(ir::Segment& segment) {
  std::vector<int> started;
  for (size_t i = 0; i < segment.code.size(); ++i) {
    ir::Instr& instr = segment.code[i];
    instr.after.clear();
    if (is_collective(instr)) {
      started.push_back(static_cast<int>(i));
      continue;
    }
    auto end = started.end();
    while (end != started.begin() && !conflict(segment.code[static_cast<size_t>(*(end - 1))], instr)) --end;
    instr.after.assign(started.begin(), end);
    started.erase(started.begin(), end);
  }
  segment.after = std::move(started);
}

void wait_at_once(ir::Segment& segment) {
  for (size_t i = 0; i < segment.code.size(); ++i) {
    std::vector<int>& after = i + 1 < segment.code.size() ? segment.code[i + 1].after : segment.after;
    after.clear();
    if (is_collective(segment.code[i])) after.push_back(static_cast<int>(i));
  }
}

}  // namespace

void order_collectives(ir::StageCode& stage, bool overlap) {
  for (ir::Segment* segment : stage.segments()) {
    if (!overlap) {
      wait_at_once(*segment);
      continue;
    }
    *segment = overlapped(stage, std::move(*segment));
  }
}

ir::Segment overlapped(const ir::StageCode& stage, ir::Segment segment) {
  start_early(stage, segment);
  wait_late(segment);
  return segment;
}

}  // namespace switchyard::compiler
