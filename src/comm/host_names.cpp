#include "comm/host_names.hpp"

#include <algorithm>

namespace switchyard::comm {

cluster::Cluster cluster_of_names(const std::vector<std::string>& names) {
  cluster::Cluster cluster;
  for (const std::string& name : names) {
    const auto at = std::find(cluster.names.begin(), cluster.names.end(), name);
    cluster.host.push_back(static_cast<int>(at - cluster.names.begin()));
    if (at == cluster.names.end()) cluster.names.push_back(name);
  }
  return cluster;
}

}  // namespace switchyard::comm
