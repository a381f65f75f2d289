#include "cost/exchange.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace switchyard::cost {
namespace {

// What a rank has to do at one direction of a class of links.
struct Load {
  int messages = 0;
  double seconds = 0;
};

// A rank's use of its port.
struct Use {
  Port port;
  int rank = 0;
  Load load;
};

constexpr std::array kLinks{cluster::Link::intra_host, cluster::Link::inter_host};

// Uses in order of ports and ranks. longest_pair: seconds between the two ranks that take longest.
struct Uses {
  std::vector<Use> of_ports;
  double longest_pair = 0;
};

// Uses of ports by messages that are sorted by their ends, none from a rank to itself.
Uses uses_of(const cluster::Hardware& hardware, const cluster::Cluster& placement, std::span<const Message> messages) {
  int first = std::numeric_limits<int>::max(), last = -1;
  for (const Message& message : messages) {
    first = std::min({first, message.from, message.to});
    last = std::max({last, message.from, message.to});
  }
  const auto width = static_cast<size_t>(last - first + 1);
  std::vector<Load> loads(2 * kLinks.size() * width);  // by link, direction, rank
  Uses uses;
  for (size_t i = 0, next = 0; i < messages.size(); i = next) {
    const int from = messages[i].from, to = messages[i].to;
    const cluster::Link link = placement.link(from, to);
    const cluster::LinkClass& what = hardware.link(link);
    double size = 0, slowed = 0;
    for (; next < messages.size() && messages[next].from == from && messages[next].to == to; ++next) {
      const double bytes = static_cast<double>(messages[next].bytes);
      size += bytes;
      slowed += messages[next].summed ? bytes / what.sum_share : bytes;
    }
    const double seconds = slowed / (what.bandwidth.count * what.curve.at(size));
    uses.longest_pair =
        std::max(uses.longest_pair, what.latency.count + seconds * (what.bandwidth.count / what.pair_rate().count));
    const auto links = static_cast<size_t>(std::ranges::find(kLinks, link) - kLinks.begin());
    for (const bool out : {true, false}) {
      Load& load = loads[(2 * links + out) * width + static_cast<size_t>((out ? from : to) - first)];
      ++load.messages;
      load.seconds += seconds;
    }
  }
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i].messages == 0) continue;
    const cluster::Link link = kLinks[i / width / 2];
    const int rank = first + static_cast<int>(i % width), device = rank % hardware.devices_per_host;
    uses.of_ports.push_back({{.link = link,
                              .host = placement.host[static_cast<size_t>(rank)],
                              .number = device / hardware.link(link).shared_by,
                              .out = i / width % 2 == 1},
                             rank,
                             loads[i]});
  }
  std::ranges::sort(uses.of_ports, {}, [](const Use& use) { return std::tie(use.port, use.rank); });
  return uses;
}

}  // namespace

Exchange exchange_over(const cluster::Hardware& hardware, const cluster::Cluster& placement,
                       std::span<const Message> sends) {
  std::vector<Message> messages;
  for (const Message& message : sends)
    if (message.from != message.to && message.bytes > 0) messages.push_back(message);
  if (messages.empty()) return {};
  const auto ends = [](const Message& message) { return std::pair(message.from, message.to); };
  if (!std::ranges::is_sorted(messages, {}, ends)) std::ranges::sort(messages, {}, ends);
  const auto [uses, longest_pair] = uses_of(hardware, placement, messages);
  Exchange done{.time = {longest_pair}};
  for (size_t first = 0, end = 0; first < uses.size(); first = end) {
    const Port& port = uses[first].port;
    Load load;  // messages: most of one rank
    for (; end < uses.size() && uses[end].port == port; ++end)
      load = {std::max(load.messages, uses[end].load.messages), load.seconds + uses[end].load.seconds};
    done.time.count = std::max(done.time.count, load.messages * hardware.link(port.link).latency.count + load.seconds);
    done.ports.push_back({port, load.seconds});
  }
  for (Exchange::PortShare& port : done.ports) port.share /= done.time.count;
  std::map<std::pair<int, cluster::Link>, double> devices;
  for (size_t i = 0, port = 0; i < uses.size(); ++i) {
    if (uses[i].port != done.ports[port].port) ++port;
    devices[{uses[i].rank, uses[i].port.link}] += done.ports[port].share / 2;
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
