// Hosts from the machine names of the ranks.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.hpp"

namespace switchyard::comm {

/// names[r]: machine of rank r. Equal names are one host; hosts are numbered by their first rank.
cluster::Cluster cluster_of_names(const std::vector<std::string>& names);

}  // namespace switchyard::comm
