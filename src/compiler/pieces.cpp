#include "compiler/pieces.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace switchyard::compiler {
namespace {

std::vector<ir::UnitEvent> in_order(const std::map<int, int>& instr_of_unit) {
  std::vector<ir::UnitEvent> events;
  for (const auto& [unit, instr] : instr_of_unit) events.push_back({unit, instr});
  std::ranges::stable_sort(events, {}, &ir::UnitEvent::instr);
  return events;
}

// Begins and ends of collectives, and operators that wait for one.
std::set<int> ends_of_collectives(const ir::Segment& segment) {
  std::set<int> starts;
  for (int i = 0; i < static_cast<int>(segment.code.size()); ++i) {
    const ir::Instr& instr = segment.code[static_cast<size_t>(i)];
    if (instr.queue == ir::Queue::collective) starts.insert({i, i + 1});
    if (!instr.after.empty()) starts.insert(i);
  }
  starts.erase(0);
  starts.erase(static_cast<int>(segment.code.size()));
  return starts;
}

void cut_segment(ir::Segment& segment, bool reads, bool writes, bool apart) {
  std::map<int, int> first_touch;  // first touch of each unit
  const auto touch = [&](const std::vector<ir::UnitEvent>& events) {
    for (const ir::UnitEvent& event : events) {
      int& first = first_touch.try_emplace(event.unit, event.instr).first->second;
      first = std::min(first, event.instr);
    }
  };
  if (reads) touch(segment.awaits);
  if (writes) touch(segment.first_writes);
  std::set<int> starts;
  for (const auto& [unit, instr] : first_touch) starts.insert(instr);
  if (!starts.empty()) starts.erase(starts.begin());  // what comes ahead of it belongs to the first piece
  segment.apart = apart;
  if (apart) starts.merge(ends_of_collectives(segment));
  for (const int instr : starts) segment.cuts.push_back({instr, {}});
  if (apart) return;
  // Collectives that an instruction waits for behind a cut have ended at the cut.
  size_t cut = 0;
  std::vector<int> started;
  const auto wait = [&](std::vector<int>& after) {
    std::erase_if(after, [&](int collective) { return std::ranges::find(started, collective) == started.end(); });
    std::erase_if(started, [&](int collective) { return std::ranges::find(after, collective) != after.end(); });
  };
  for (size_t i = 0; i < segment.code.size(); ++i) {
    if (cut < segment.cuts.size() && segment.cuts[cut].instr == static_cast<int>(i))
      segment.cuts[cut++].after = std::exchange(started, {});
    wait(segment.code[i].after);
    if (segment.code[i].queue == ir::Queue::collective) started.push_back(static_cast<int>(i));
  }
  wait(segment.after);
}

}  // namespace

void annotate_units(const ir::Graph& graph, const ir::StageCode& stage, ir::Segment& segment) {
  std::map<int, int> first_read, last_read, first_write, last_write;
  for (size_t i = 0; i < segment.code.size(); ++i) {
    const auto touch = [&](const std::vector<int>& buffers, ir::ValueKind kind, auto& first, auto& last) {
      for (const int b : buffers) {
        const ir::Buffer& buffer = stage.buffers[static_cast<size_t>(b)];
        if (buffer.kind != kind) continue;
        const int unit = graph.param(graph.value(buffer.value).param).unit;
        first.try_emplace(unit, static_cast<int>(i));
        last[unit] = static_cast<int>(i);
      }
    };
    touch(segment.code[i].in, ir::ValueKind::param, first_read, last_read);
    touch(segment.code[i].out, ir::ValueKind::gradient, first_write, last_write);
  }
  segment.awaits = in_order(first_read);
  segment.last_reads = in_order(last_read);
  segment.first_writes = in_order(first_write);
  segment.releases = in_order(last_write);
}

void cut_into_pieces(ir::StageCode& stage) {
  for (ir::Segment* segment : stage.segments()) cut_segment(*segment, stage.gathers(), stage.reduces(), stage.paired);
}

}  // namespace switchyard::compiler
