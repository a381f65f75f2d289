// Which rank lives on which host. Ranks are numbered 0 .. ranks()-1; hosts are numbered in rank order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::cluster {

enum class Link { local, intra_host, inter_host };

struct Cluster {
  std::vector<int> host;           // host of each rank
  std::vector<std::string> names;  // names of the hosts; may be empty
  bool overlaps_collectives =
      true;                     // whether messages travel while ranks compute; not where ranks copy them themselves
  bool torch_elements = false;  // same as Device's
  int ranks() const { return static_cast<int>(host.size()); }
  int hosts() const;
  bool same_host(int a, int b) const { return host[static_cast<size_t>(a)] == host[static_cast<size_t>(b)]; }
  Link link(int from, int to) const;
};

/// `hosts` hosts with `devices` ranks each.
Cluster uniform(int hosts, int devices);
/// Whether a text is "2x8": hosts x devices.
bool is_topology(std::string_view spec);
/// "2x8": hosts x devices, or the path of a hostfile. UserError if it is neither.
Cluster from_spec(std::string_view spec);
/// Open MPI's hostfile format: `name slots=N [max_slots=M]` a line, '#' comments. UserError with the line number.
Cluster from_hostfile(const std::string& path);

}  // namespace switchyard::cluster
