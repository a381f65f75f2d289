// What messages and collectives cost on the links of a cluster.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "cluster/hardware.hpp"

namespace switchyard::cost {

/// A rank sends to another one.
struct Hop {
  int from = 0, to = 0;
  bool operator==(const Hop&) const = default;
};

/// What one message gets on its way: the link's latency, its part of the port's bandwidth, and the curve by its bytes.
struct LinkRate {
  Seconds latency{};
  BytesPerSecond bandwidth{std::numeric_limits<double>::infinity()};
  cluster::EfficiencyCurve curve{};

  /// Point to point.  formula  a + N / (B share(N))
  /// edges  no bytes are no message and take no time
  Seconds time(Bytes message) const { return time(static_cast<double>(message.count)); }
  /// The same for the parts of a collective, which needn't be whole bytes.
  Seconds time(double bytes) const;
};

/// The links of a cluster with its ranks on them.
class Links {
 public:
  /// Ranks as in hardware.placement().
  explicit Links(const cluster::Hardware& hardware);
  /// InternalError if the placement has more hosts, or more ranks on a host, than the hardware.
  Links(const cluster::Hardware& hardware, const cluster::Cluster& placement);

  /// A message that has its ports for itself.
  LinkRate alone(int from, int to) const;
  /// The slowest of hops that run at the same time: where one crosses hosts, that class of link, else the one inside a host. Every hop
  /// gets an equal part of its ports; of the ports of that class (a NIC, one direction) the one with most hops counts.
  /// edges  hops of a rank to itself take no time, also alone
  LinkRate together(std::span<const Hop> at_once) const;
  /// A ring over `group`, each sending to the next and the last to the first: of ranks in order of hosts one on each host sends over its
  /// NIC; of ranks that alternate between hosts all do, and those that share a NIC divide it.
  LinkRate ring(std::span<const int> group) const;

 private:
  const cluster::LinkClass& class_of(cluster::Link link) const { return hardware_.link(link); }

  cluster::Hardware hardware_;
  cluster::Cluster placement_;
  std::vector<int> device_;  // of each rank, counted on its host
};

/// The hops of rings that run at the same time, one ring for each group. Groups of one rank have none.
std::vector<Hop> ring_hops(std::span<const std::vector<int>> groups);

/// Ring collectives of n ranks; `gathered` is N, what every rank has in the end (all-gather), had at first (reduce-scatter), or both
/// (all-reduce). Every message has N/n bytes.
/// formula  all-gather, reduce-scatter (n-1) (a + N/n / B);  all-reduce twice that
/// edges    one rank, or no bytes: no time
/// source   Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005
Seconds all_gather(const LinkRate& ring, int ranks, Bytes gathered);
Seconds reduce_scatter(const LinkRate& ring, int ranks, Bytes gathered);
Seconds all_reduce(const LinkRate& ring, int ranks, Bytes gathered);

/// Two activities that start together and slow each other: while both run each takes k times as long.
/// formula  max(a, b) + (k - 1) min(a, b);   k = 1 hides the shorter one, k = 2 is one after the other
/// errors   InternalError for k < 1
Seconds overlapped(Seconds a, Seconds b, double k);

}  // namespace switchyard::cost
