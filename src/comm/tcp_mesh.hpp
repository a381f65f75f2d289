// Sockets between all ranks of a launch, found through rank 0's address.
#pragma once

#include <vector>

#include "cluster/cluster.hpp"
#include "comm/launch.hpp"
#include "comm/sockets.hpp"

namespace switchyard::comm {

struct Mesh {
  std::vector<Descriptor> sockets;  // per rank, non-blocking; the own one is empty
  cluster::Cluster cluster;
};

/// Connects all ranks pairwise. Rank 0 listens on the master's address, and only there; the connections that carry data
/// use the same interface, or the one that the options name. A peer that doesn't know the job's token, sends an invalid
/// greeting or claims a rank that is taken is refused; options.say reports it, and the others continue.
/// errors  ClusterError naming the rank, the address and the peer: rank 0's port is taken; ranks are missing after
///         options.timeout, or silent; this rank was refused, with the reason; the listener at the address doesn't know
///         the token. UserError: this host has no such interface, or rank 0's host has no such address
Mesh tcp_mesh(const Launch& launch, const FabricOptions& options);

}  // namespace switchyard::comm
