#include "cost/exchange.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace switchyard::cost {
namespace {

struct Load {
  std::map<int, int> messages;  // of each rank
  double seconds = 0;
};

}  // namespace

Exchange exchange_over(const cluster::Hardware& hardware, const cluster::Cluster& placement,
                       std::span<const Message> sends) {
  std::vector<Message> messages;
  for (const Message& message : sends)
    if (message.from != message.to && message.bytes > 0) messages.push_back(message);
  const auto ends_of = [](const Message& message) { return std::pair(message.from, message.to); };
  std::ranges::sort(messages, {}, ends_of);
  std::map<Port, Load> ports;
  for (size_t i = 0, next = 0; i < messages.size(); i = next) {
    const std::pair<int, int> ends = ends_of(messages[i]);
    const cluster::Link link = placement.link(ends.first, ends.second);
    const cluster::LinkClass& what = hardware.link(link);
    double size = 0, slowed = 0;
    for (; next < messages.size() && ends_of(messages[next]) == ends; ++next) {
      const double bytes = static_cast<double>(messages[next].bytes);
      size += bytes;
      slowed += messages[next].summed ? bytes / what.sum_share : bytes;
    }
    const double seconds = slowed / (what.bandwidth.count * what.curve.at(size));
    for (const bool out : {true, false}) {
      const int rank = out ? ends.first : ends.second;
      const int device = rank % hardware.devices_per_host;
      Load& load = ports[{link, placement.host[static_cast<size_t>(rank)], device / what.shared_by, out}];
      ++load.messages[rank];
      load.seconds += seconds;
    }
  }
  Exchange done;
  for (const auto& [port, load] : ports) {
    int most = 0;
    for (const auto& [rank, count] : load.messages) most = std::max(most, count);
    done.time.count = std::max(done.time.count, most * hardware.link(port.link).latency.count + load.seconds);
  }
  std::map<std::pair<int, cluster::Link>, double> devices;
  for (const auto& [port, load] : ports) {
    const double share = load.seconds / done.time.count;
    done.ports.push_back({port, share});
    for (const auto& [rank, count] : load.messages) devices[{rank, port.link}] += share / 2;
  }
  for (const auto& [which, share] : devices) done.devices.push_back({which.first, which.second, share});
  return done;
}

double Exchange::most_of_a_device(const cluster::Hardware& hardware) const {
  std::map<int, double> taken;
  double most = 0;
  for (const DeviceShare& use : devices)
    most = std::max(most, taken[use.rank] += use.share * hardware.device_share(use.link));
  return most;
}

Exchange in_turn(const Exchange& first, const Exchange& next, double times) {
  const double before = first.time.count, after = next.time.count * times;
  if (before == 0) {
    Exchange alone = next;
    alone.time.count = after;
    return alone;
  }
  Exchange both{.time = {before + after}};
  std::map<Port, double> ports;
  std::map<std::pair<int, cluster::Link>, double> devices;
  for (const auto& [part, seconds] : {std::pair(&first, before), std::pair(&next, after)}) {
    for (const auto& [port, share] : part->ports) ports[port] += share * seconds / both.time.count;
    for (const auto& [rank, link, share] : part->devices) devices[{rank, link}] += share * seconds / both.time.count;
  }
  for (const auto& [port, share] : ports) both.ports.push_back({port, share});
  for (const auto& [which, share] : devices) both.devices.push_back({which.first, which.second, share});
  return both;
}

}  // namespace switchyard::cost
