#include "planner/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/errors.hpp"

namespace switchyard::planner {
namespace {

std::string duration(double seconds) { return format_duration(Seconds{seconds}); }

std::string table(const Planner& planner, const Found& found) {
  std::string text = fmt::format("\n{:>3} {:>10} {:>8} {:>10} {:>14} {:>10} {:>10} {:>10}\n", "", "step", "more", "compute", "communication", "idle",
                                 "transfers", "memory");
  const double best = found.best.front().seconds;
  for (size_t i = 0; i < found.best.size(); ++i) {
    const Account a = planner.account(found.best[i]);
    text += fmt::format("{:>3} {:>10} {:>7.2f}% {:>10} {:>14} {:>10} {:>10} {:>10}\n", i + 1, duration(a.seconds), 100 * (a.seconds / best - 1),
                        duration(a.compute), duration(a.communication), duration(a.idle), duration(a.transfers), format_bytes(Bytes{a.memory}));
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
    text += fmt::format("  to {} under {}: {} (compute {}, communication {}, idle {}); parameters come in {}, gradients leave in {}; activations {}\n",
                        planner.model().longest(phase.range), to_string(phase.shape), duration(parts.seconds), duration(parts.compute),
                        duration(parts.communication), duration(parts.idle), duration(times[i].moves), duration(times[i].flush),
                        format_bytes(Bytes{need.activations}));
  }
  return text;
}

std::string limits(const Planner& planner, const Found& found) {
  const Account a = planner.account(found.best.front());
  const double share = static_cast<double>(a.memory) / static_cast<double>(planner.request().hardware.device.memory.count);
  return fmt::format("\nIt is limited by {}. Its fullest rank takes {:.0f}% of the device's memory; {} candidates needed more than there is.\n",
                     limit_of(a), 100 * share, found.counts.memory);
}

using Limit = std::function<std::function<bool()>()>;

std::string what_if(const Planner& planner, const Found& found, const Limit& limit, const std::string& what, const std::function<void(Request&)>& change) {
  Request request = planner.request();
  change(request);
  try {
    const Planner other(std::move(request));
    const Choice choice = other.plan(1, 0, limit()).best.front();
    const bool same = other.to_string(choice) == planner.to_string(found.best.front());
    return fmt::format("  {}: {}, {}\n", what, duration(choice.seconds), same ? "the same plan" : other.to_string(choice));
  } catch (const UserError& error) {
    return fmt::format("  {}: {}\n", what, error.what());
  }
}

void faster(cluster::LinkClass& link) { link.bandwidth = {2 * link.bandwidth.count}; }

}  // namespace

std::string limit_of(const Account& a) {
  const std::array<std::pair<double, const char*>, 4> parts = {
      {{a.compute, "computing"}, {a.communication, "communication inside stages"}, {a.idle, "idle time of pipelines and of lanes with less work"},
       {a.transfers, "parameters, gradients and the update"}}};
  const auto most = std::max_element(parts.begin(), parts.end());
  return fmt::format("{}: {:.0f}% of the step", most->second, 100 * most->first / a.seconds);
}

std::string explain(const Planner& planner, const Found& found, const Limit& limit) {
  std::string text = table(planner, found) + phases(planner, found.best.front()) + limits(planner, found) + "\nWhat would change it:\n";
  text += what_if(planner, found, limit, "twice the memory", [](Request& r) {
    r.hardware.device.memory = {2 * r.hardware.device.memory.count};
    r.memory *= 2;
  });
  text += what_if(planner, found, limit, "links inside hosts twice as fast", [](Request& r) { faster(r.hardware.intra_host); });
  if (planner.request().hardware.hosts > 1)
    text += what_if(planner, found, limit, "links between hosts twice as fast", [](Request& r) { faster(*r.hardware.inter_host); });
  text += what_if(planner, found, limit, "the longest document twice as long", [](Request& r) {
    r.context *= 2;
    for (std::vector<i64>& lengths : r.steps) *std::ranges::max_element(lengths) *= 2;
  });
  return text;
}

}  // namespace switchyard::planner
