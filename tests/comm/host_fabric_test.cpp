#include "comm/host_fabric.hpp"

#include <gtest/gtest.h>

#include "comm/collectives.hpp"
#include "rank_threads.hpp"

namespace switchyard::comm {
namespace {

constexpr int kChannel = 1;

TEST(HostFabric, joins_the_ranks_of_a_host_and_sends_nothing_to_others) {
  cluster::Cluster cluster = cluster::uniform(2, 2);
  cluster.host = {0, 1, 0, 1};  // so that no rank's number is that among its host's ranks by chance
  auto fabrics = thread_fabrics(4, cluster);
  std::vector<std::vector<int>> found(4);
  const auto ends = run_ranks(fabrics, [&](Fabric& fabric) {
    HostFabric host(fabric);
    EXPECT_EQ(host.rank(), fabric.rank() / 2);
    EXPECT_EQ(host.size(), 2);
    EXPECT_EQ(host.cluster().hosts(), 1);
    EXPECT_FALSE(host.serves_any());
    found[static_cast<size_t>(fabric.rank())] =
        all_gather_values(host, everyone(host, kChannel), "numbers", 1, fabric.rank());
    EXPECT_EQ(fabric.traffic()[static_cast<size_t>(cluster::Link::inter_host)], 0);
    EXPECT_GT(fabric.traffic()[static_cast<size_t>(cluster::Link::intra_host)], 0);
  });
  ASSERT_EQ(ends, std::vector<std::string>(4));
  EXPECT_EQ(found, (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {0, 2}, {1, 3}}));
}

TEST(HostFabric, names_the_peer_that_it_waits_for_by_its_number_among_all_ranks) {
  cluster::Cluster cluster = cluster::uniform(2, 2);
  FabricOptions options;
  options.timeout = std::chrono::milliseconds(200);
  auto fabrics = thread_fabrics(4, cluster, options);
  const auto ends = run_ranks(fabrics, [&](Fabric& fabric) {
    HostFabric host(fabric);
    if (fabric.rank() == 2) all_gather_values(host, everyone(host, kChannel), "numbers", 1, 0);
  });
  EXPECT_NE(ends[2].find("rank 3"), std::string::npos) << ends[2];
}

}  // namespace
}  // namespace switchyard::comm
