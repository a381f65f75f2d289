#include "comm/host_names.hpp"

#include <gtest/gtest.h>

namespace switchyard::comm {
namespace {

TEST(HostNames, HostsAreNumberedByTheirFirstRank) {
  const cluster::Cluster cluster = cluster_of_names({"b", "a", "b", "c", "a"});
  EXPECT_EQ(cluster.host, (std::vector<int>{0, 1, 0, 2, 1}));
  EXPECT_EQ(cluster.names, (std::vector<std::string>{"b", "a", "c"}));
}

}  // namespace
}  // namespace switchyard::comm
