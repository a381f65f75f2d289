#include "schedule/replay.hpp"

#include <algorithm>
#include <cmath>

#include "base/errors.hpp"
#include "schedule/item_index.hpp"

namespace switchyard::schedule {
namespace {

bool is_time(Seconds time) { return std::isfinite(time.count) && time.count >= 0; }

}  // namespace

Seconds Costs::of(Pass pass, int position) const {
  const ItemTimes& times = of(position);
  if (pass == Pass::F) return times.forward;
  if (pass == Pass::B) return times.input_gradient;
  return pass == Pass::W ? times.weight_gradient : times.input_gradient + times.weight_gradient - times.saved;
}

Seconds Timing::worst_idle() const { return idle.empty() ? Seconds{} : *std::max_element(idle.begin(), idle.end()); }

Seconds Timing::longest_stage() const {
  Seconds longest;
  for (const std::vector<Span>& stage : spans) {
    if (!stage.empty()) longest = std::max(longest, stage.back().end - stage.front().start);
  }
  return longest;
}

void check_costs(const Costs& costs, int positions) {
  check(costs.at.size() == 1 || static_cast<int>(costs.at.size()) == positions,
        "schedule: times of {} positions for a pipeline of {}", costs.at.size(), positions);
  for (const ItemTimes& times : costs.at) {
    check(is_time(times.forward) && is_time(times.input_gradient) && is_time(times.weight_gradient) &&
              is_time(times.saved) && times.saved <= times.input_gradient + times.weight_gradient &&
              is_time(costs.send),
          "schedule: a time is negative or not finite: F {}, B {}, W {}, send {}", times.forward.count,
          times.input_gradient.count, times.weight_gradient.count, costs.send.count);
  }
}

Timing replay(const Schedule& schedule, const Costs& costs) {
  check_costs(costs, schedule.positions());
  const ItemIndex index(schedule);
  Timing timing;
  timing.idle.resize(schedule.order.size());
  for (const std::vector<Item>& items : schedule.order) timing.spans.emplace_back(items.size());
  const auto span_of = [&](Place place) -> Span& {
    return timing.spans[static_cast<size_t>(place.stage)][static_cast<size_t>(place.index)];
  };
  run_in_order(index, [&](Place place) {
    const bool first = place.index == 0;
    const Seconds free = first ? Seconds{} : span_of({place.stage, place.index - 1}).end;
    Seconds start = free;
    for (const Place& need : index.waits_for(place)) {
      start = std::max(start, span_of(need).end + (need.stage == place.stage ? Seconds{} : costs.send));
    }
    span_of(place) = {start, start + costs.of(index.at(place).pass, index.position(place))};
    if (!first) timing.idle[static_cast<size_t>(place.stage)] += start - free;
    timing.makespan = std::max(timing.makespan, span_of(place).end);
  });
  return timing;
}

}  // namespace switchyard::schedule
