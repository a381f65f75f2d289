#include "cost/link_cost.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/errors.hpp"

namespace switchyard::cost {

using cluster::Link;

Seconds LinkRate::time(double bytes) const {
  if (bytes <= 0) return {0};
  return {latency.count + bytes / (bandwidth.count * curve.at(bytes))};
}

Links::Links(const cluster::Hardware& hardware) : Links(hardware, hardware.placement()) {}

Links::Links(const cluster::Hardware& hardware, const cluster::Cluster& placement) : hardware_(hardware), placement_(placement) {
  check(placement.hosts() <= hardware.hosts, "ranks on {} hosts of a cluster that has {}", placement.hosts(), hardware.hosts);
  std::vector<int> taken(static_cast<size_t>(placement.hosts()), 0);
  for (const int host : placement.host) {
    int& next = taken[static_cast<size_t>(host)];
    check(next < hardware.devices_per_host, "host {} has more ranks than its {} devices", host, hardware.devices_per_host);
    device_.push_back(next++);
  }
}

LinkRate Links::alone(int from, int to) const {
  const Hop hop{from, to};
  return together(std::span(&hop, 1));
}

LinkRate Links::together(std::span<const Hop> at_once) const {
  Link slowest = Link::local;
  for (const Hop& hop : at_once) slowest = std::max(slowest, placement_.link(hop.from, hop.to));
  if (slowest == Link::local) return {};
  const cluster::LinkClass& link = class_of(slowest);
  std::map<std::tuple<bool, int, int>, int> hops;  // of a port: sends or receives, host, number
  int most = 1;
  for (const Hop& hop : at_once) {
    if (placement_.link(hop.from, hop.to) != slowest) continue;
    for (const auto& [sends, rank] : {std::pair(true, hop.from), std::pair(false, hop.to)}) {
      const auto r = static_cast<size_t>(rank);
      most = std::max(most, ++hops[{sends, placement_.host[r], device_[r] / link.shared_by}]);
    }
  }
  return {link.latency, {link.bandwidth.count / most}, link.curve};
}

LinkRate Links::ring(std::span<const int> group) const {
  const std::vector<int> ranks(group.begin(), group.end());
  return together(ring_hops(std::span(&ranks, 1)));
}

std::vector<Hop> ring_hops(std::span<const std::vector<int>> groups) {
  std::vector<Hop> hops;
  for (const std::vector<int>& group : groups) {
    if (group.size() < 2) continue;
    for (size_t i = 0; i < group.size(); ++i) hops.push_back({group[i], group[(i + 1) % group.size()]});
  }
  return hops;
}

Seconds all_gather(const LinkRate& ring, int ranks, Bytes gathered) {
  check(ranks > 0 && gathered.count >= 0, "a collective of {} bytes on {} ranks", gathered.count, ranks);
  return (ranks - 1.0) * ring.time(static_cast<double>(gathered.count) / ranks);
}

Seconds reduce_scatter(const LinkRate& ring, int ranks, Bytes gathered) { return all_gather(ring, ranks, gathered); }

Seconds all_reduce(const LinkRate& ring, int ranks, Bytes gathered) {
  return reduce_scatter(ring, ranks, gathered) + all_gather(ring, ranks, gathered);
}

Seconds overlapped(Seconds a, Seconds b, double k) {
  check(k >= 1, "activities that run together speed each other up by {}", k);
  return std::max(a, b) + (k - 1) * std::min(a, b);
}

}  // namespace switchyard::cost
