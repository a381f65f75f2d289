#include "planner/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/errors.hpp"
#include "base/wrapped_text.hpp"
#include "batch/planner.hpp"

namespace switchyard::planner {
namespace {

constexpr size_t kFurther = 4;  // spaces before what belongs to a line

std::string duration(double seconds) { return format_duration(Seconds{seconds}); }

std::string table(const Planner& planner, std::span<const Judged> plans) {
  std::string text = fmt::format("\n{:>3} {:>10} {:>8} {:>10} {:>10} {:>14} {:>10} {:>10} {:>10}\n", "", "step", "more",
                                 "planned", "compute", "communication", "idle", "transfers", "memory");
  const double best = plans.front().step();
  for (size_t i = 0; i < plans.size(); ++i) {
    const Account a = planner.account(plans[i].choice);
    text += fmt::format("{:>3} {:>10} {:>7.2f}% {:>10} {:>10} {:>14} {:>10} {:>10} {:>10}\n",
                        plans[i].number.value_or(i + 1), duration(plans[i].step()), 100 * (plans[i].step() / best - 1),
                        duration(a.seconds), duration(a.compute), duration(a.communication), duration(a.idle),
                        duration(a.transfers), format_bytes(Bytes{plans[i].peak.value_or(a.memory)}));
  }
  return text;
}

std::string phases(const Planner& planner, const Choice& best) {
  std::string text = "\nThe best plan's phases, in their order:\n";
  const std::vector<PhaseTimes> times = phase_times(planner.model(), planner.transfers(), best);
  for (size_t i = 0; i < times.size(); ++i) {
    const Phase& phase = best.phases[i];
    const PhaseParts parts = planner.model().parts(phase.shape, phase.capacity, phase.range);
    const MemoryNeed need = planner.model().need(phase.shape, phase.capacity, phase.range);
    text += wrapped(fmt::format("  to {} under {}:\n", planner.model().longest(phase.range), to_string(phase.shape)),
                    kFurther) +
            wrapped(fmt::format("    {} (compute {}, communication {}, idle {}); receiving parameters {}, reducing "
                                "gradients {}; activations {}\n",
                                duration(parts.seconds), duration(parts.compute), duration(parts.communication),
                                duration(parts.idle), duration(times[i].moves), duration(times[i].reduce),
                                format_bytes(Bytes{need.activations})),
                    kFurther);
  }
  return text;
}

std::string limits(const Planner& planner, const Judged& best, const Counts& counts) {
  const Account a = planner.account(best.choice);
  return fmt::format(
      "\nIt is limited by {}.\nThe rank with the highest peak needs {}.\n{} candidates exceeded the budget.\n",
      limit_of(a), memory_of(best.peak.value_or(a.memory), planner.memory()), counts.memory);
}

// The present plan under the changed request, if it is valid there (ranks, documents, memory): the simulator may still
// find it faster.
std::optional<Choice> there(const Planner& planner, const Choice& choice, const Planner& other) {
  const std::vector<config::Bucket> buckets = planner.buckets(choice);
  const std::vector<int> order = planner.order(choice);
  std::optional<Choice> same =
      other.choice(buckets, order.empty() ? batch::published_order(static_cast<int>(buckets.size())) : order);
  if (same && step_seconds(other.model(), other.transfers(), *same, other.memory()) > same->seconds) same.reset();
  return same;
}

std::string what_if(const Planner& planner, const Judged& best, const Questions& ask, const std::string& what,
                    const std::function<void(Request&)>& change) {
  Request request = planner.request();
  change(request);
  try {
    const Planner other(std::move(request));
    Found found = other.plan(1, 0, ask.limit());
    std::vector<Choice> choices = std::move(found.best);
    if (std::optional<Choice> same = there(planner, best.choice, other);
        same && other.to_string(*same) != other.to_string(choices.front()))
      choices.push_back(std::move(*same));
    size_t quickest = 0;
    const double seconds = ask.simulate ? ask.simulate(other, choices, quickest) : choices.front().seconds;
    const double before = ask.simulate ? best.step() : best.choice.seconds;
    const std::string plan = other.to_string(choices[quickest]);
    const bool same = plan == planner.to_string(best.choice);
    return fmt::format("  {}: {} ({:+.1f}%{}){}\n{}", what, duration(seconds), 100 * (seconds / before - 1),
                       found.proven ? "" : ", not proven best", same ? ", the same plan" : "",
                       same ? "" : part_per_line(plan, kFurther));
  } catch (const UserError& error) {
    return wrapped(fmt::format("  {}: {}\n", what, error.what()), kFurther);
  }
}

void faster(cluster::LinkClass& link) {
  link.bandwidth = {2 * link.bandwidth.count};
  link.pair_bandwidth = {2 * link.pair_bandwidth.count};
}

// Doubles the speed of all work on the device.
void faster(cluster::Device& device) {
  device.launch = {device.launch.count / 2};
  for (auto& [type, rates] : device.rates) {
    for (FlopsPerSecond* rate : {&rates.matmul, &rates.attention, &rates.attention_backward}) rate->count *= 2;
    rates.memory.count *= 2;
  }
  for (auto& [type, tables] : device.operators)
    for (auto& [name, table] : tables) {
      for (cluster::MeasuredCall& call : table.calls) call.seconds /= 2;
      for (cluster::MeasuredAttention& one : table.attention)
        for (double* time : {&one.per_row, &one.per_pair, &one.per_square}) *time /= 2;
    }
  for (auto& [name, codec] : device.codecs) {
    for (BytesPerSecond* rate : {&codec.encode, &codec.decode}) rate->count *= 2;
    codec.message = {codec.message.count / 2};
  }
}

}  // namespace

std::string limit_of(const Account& a) {
  const std::array<std::pair<double, const char*>, 4> parts = {
      {{a.compute, "computing"},
       {a.communication, "communication inside stages"},
       {a.idle, "idle time of pipelines and of replicas with less work"},
       {a.transfers, "parameters, gradients and the update"}}};
  const auto most = std::max_element(parts.begin(), parts.end());
  return fmt::format("{}: {:.0f}% of the step", most->second, 100 * most->first / a.seconds);
}

std::string memory_of(i64 peak, i64 budget) {
  return fmt::format("{} of the budget of {} ({:.0f}%)", format_bytes(Bytes{peak}), format_bytes(Bytes{budget}),
                     100 * static_cast<double>(peak) / static_cast<double>(budget));
}

std::string explain(const Planner& planner, std::span<const Judged> plans, const Counts& counts, const Questions& ask) {
  const Judged& best = plans.front();
  std::string text = table(planner, plans) + phases(planner, best.choice) + limits(planner, best, counts) +
                     "\nWhat would change it:\n";
  const auto add = [&](const std::string& what, const std::function<void(Request&)>& change) {
    text += what_if(planner, best, ask, what, change);
  };
  add("twice the memory", [](Request& r) {
    r.hardware.device.memory = {2 * r.hardware.device.memory.count};
    r.memory *= 2;
  });
  add("devices twice as fast", [](Request& r) { faster(r.hardware.device); });
  add("links inside hosts twice as fast", [](Request& r) { faster(r.hardware.intra_host); });
  if (planner.request().hardware.hosts > 1) {
    add("links between hosts twice as fast", [](Request& r) { faster(*r.hardware.inter_host); });
    add("twice as many hosts", [](Request& r) { r.hardware.hosts *= 2; });
  }
  add("the longest document twice as long", [](Request& r) {
    r.context *= 2;
    for (std::vector<i64>& lengths : r.steps) *std::ranges::max_element(lengths) *= 2;
  });
  return text;
}

}  // namespace switchyard::planner
