// Hosts from what the ranks tell of their machines.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cluster/cluster.hpp"

namespace switchyard::comm {

/// A rank's machine, as ranks tell it each other: its name, a 0, and the boot id of its kernel, by which machines with
/// equal names ("localhost") differ. Zeros follow.
using HostId = std::array<char, 256>;

/// This machine. given: a name in place of its own, with no boot id behind it; empty: none.
HostId own_host(const std::string& given);

/// hosts[r]: machine of rank r. Equal ones are one host; hosts are numbered by their first rank. A name that an earlier
/// host has gets a number: "localhost", "localhost (2)".
cluster::Cluster cluster_of_hosts(const std::vector<HostId>& hosts);

}  // namespace switchyard::comm
