// Messages that start together.
#pragma once

#include <span>
#include <vector>

#include "cluster/hardware.hpp"

namespace switchyard::cost {

/// What one rank has for another one. bytes: as they travel, whatever they are made of; summed: the other one adds it
/// to what it has.
struct Message {
  int from = 0, to = 0;
  i64 bytes = 0;
  bool summed = false;
};

/// One direction of a NIC or link port shared by consecutive devices of a host.
struct Port {
  cluster::Link link = cluster::Link::local;
  int host = 0, number = 0;
  bool out = false;
  auto operator<=>(const Port&) const = default;
};

/// How long an exchange takes, and for how much of it each port is busy (0 to 1). devices: how busy the ports are that
/// a rank uses, the mean of both directions: 1 in a ring, 0.5 where it only sends or only receives. A port that devices
/// share is as busy for each of them as for all together.
struct Exchange {
  struct PortShare {
    Port port;
    double share = 0;
  };
  struct DeviceShare {
    int rank = 0;
    cluster::Link link = cluster::Link::local;
    double share = 0;
  };
  Seconds time{};
  std::vector<PortShare> ports{};
  std::vector<DeviceShare> devices{};  // in order of ranks and links

  /// Largest share of any device's computing that the exchange takes: its ranks' use of links by what those take.
  double most_of_a_device(const cluster::Hardware& hardware) const;
};

/// `next`, so many times, after `first`. Shares are means over the time of both.
Exchange in_turn(const Exchange& first, const Exchange& next, double times = 1);

/// Until the last of the messages has come; several between two ranks go as one message. What a rank has for itself
/// takes no time.
/// formula  the longest over all ports and directions of  a n + sum of N / (B share(N));  n: most messages of one rank
///          at the port;
///          what is summed has only the class's sum_share of B;
///          or over all pairs of ranks of  a + N / (P share(N)),  P the rate of a pair, if that is longer: ports are
///          then busy for a part of the time
///          n ranks that send each other N / n of N bytes directly take (n-1) a + (n-1)/n N / B, as a ring all-gather
///          or reduce-scatter does
/// source   S. Singh et al., arXiv 2502.08145 (rates by the size of a group inside a host, and by how many groups share
///          the links between hosts); Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations
///          in MPICH, 2005
/// errors   InternalError if a message needs a class of link that the hardware lacks
Exchange exchange_over(const cluster::Hardware& hardware, const cluster::Cluster& placement,
                       std::span<const Message> messages);

}  // namespace switchyard::cost
