#include "cost/rounds.hpp"

#include <gtest/gtest.h>

namespace switchyard::cost {
namespace {

using Rounds = std::vector<std::vector<Message>>;

// Inside a host 1 MB/s and 1 ms; between hosts 100 kB/s and 10 ms, a NIC for both devices.
double seconds(const Rounds& rounds) {
  cluster::Hardware hardware;
  hardware.hosts = 2;
  hardware.devices_per_host = 2;
  hardware.intra_host = {{1e-3}, {1e6}, 1, {}};
  hardware.inter_host = cluster::LinkClass{{1e-2}, {1e5}, 2, {}};
  return rounds_over(hardware, hardware.placement(), rounds).count;
}

TEST(Rounds, none_take_no_time) {
  EXPECT_EQ(seconds({}), 0);
  EXPECT_EQ(seconds({{}, {{0, 0, 1000}}}), 0) << "what stays";
}

TEST(Rounds, wait_for_those_before_them_on_their_ranks) {
  EXPECT_DOUBLE_EQ(seconds({{{0, 1, 1000}}, {{1, 0, 1000}}}), 4e-3);
  EXPECT_DOUBLE_EQ(seconds({{{0, 1, 1000}}, {{2, 3, 1000}}}), 2e-3) << "of other ranks";
  EXPECT_DOUBLE_EQ(seconds({{{0, 1, 1000}}, {{0, 2, 1000}}, {{2, 3, 1000}}}), 2e-3 + 2e-2 + 2e-3);
}

TEST(Rounds, of_other_ranks_share_ports) {
  // Ranks 0 and 1 send through one NIC.
  EXPECT_DOUBLE_EQ(seconds({{{0, 2, 1000}}, {{1, 3, 1000}}}), 1e-2 + 2e-2);
}

}  // namespace
}  // namespace switchyard::cost
