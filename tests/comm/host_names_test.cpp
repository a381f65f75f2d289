#include "comm/host_names.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace switchyard::comm {
namespace {

HostId id_of(const std::string& name, const std::string& boot = "") {
  HostId id{};
  name.copy(id.data(), name.size());
  boot.copy(id.data() + name.size() + 1, boot.size());
  return id;
}

TEST(HostNames, HostsAreNumberedByTheirFirstRank) {
  const cluster::Cluster cluster = cluster_of_hosts({id_of("b"), id_of("a"), id_of("b"), id_of("c"), id_of("a")});
  EXPECT_EQ(cluster.host, (std::vector<int>{0, 1, 0, 2, 1}));
  EXPECT_EQ(cluster.names, (std::vector<std::string>{"b", "a", "c"}));
}

TEST(HostNames, MachinesWithEqualNamesAreTwoHosts) {
  const HostId first = id_of("localhost", "1"), second = id_of("localhost", "2"), third = id_of("localhost", "3");
  const cluster::Cluster cluster = cluster_of_hosts({first, second, id_of("a", "1"), second, first, third});
  EXPECT_EQ(cluster.host, (std::vector<int>{0, 1, 2, 1, 0, 3}));
  EXPECT_EQ(cluster.names, (std::vector<std::string>{"localhost", "localhost (2)", "a", "localhost (3)"}));
}

TEST(HostNames, AMachineTellsItsNameAndItsBoot) {
  const HostId own = own_host("");
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  EXPECT_STREQ(own.data(), name.data());
  EXPECT_NE(own, id_of(own.data())) << "something stands behind the name";
  EXPECT_EQ(own, own_host(""));
}

TEST(HostNames, AGivenNameIsAllThatCounts) {
  EXPECT_EQ(own_host("a"), id_of("a"));
  EXPECT_EQ(own_host(std::string(300, 'x')).back(), 0) << "a name of any length ends within";
}

}  // namespace
}  // namespace switchyard::comm
