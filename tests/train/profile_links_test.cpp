#include "train/profile_links.hpp"

#include <gtest/gtest.h>

#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

cluster::Hardware measured(int hosts, int devices) {
  cluster::Hardware found;
  on_ranks(hosts * devices, {}, cluster::uniform(hosts, devices), {}, [&](comm::Fabric& fabric) {
    Meeting meeting(fabric);
    cluster::Hardware hardware;
    hardware.hosts = hosts;
    hardware.devices_per_host = devices;
    profile_links(meeting, {}, hardware);
    if (fabric.rank() == 0) found = hardware;
  });
  return found;
}

void expect_sound(const cluster::LinkClass& link) {
  EXPECT_GT(link.latency.count, 0);
  EXPECT_GT(link.bandwidth.count, 1e6);
  EXPECT_EQ(link.curve.fault(), "");
  EXPECT_GT(link.sum_share, 0);
  EXPECT_LE(link.sum_share, 1);
  EXPECT_GE(link.overlap_slowdown, 1);
  EXPECT_LE(link.overlap_slowdown, 2);
}

TEST(ProfileLinks, has_those_inside_a_host_and_between_hosts) {
  const cluster::Hardware found = measured(2, 2);
  expect_sound(found.intra_host);
  ASSERT_TRUE(found.inter_host.has_value());
  expect_sound(*found.inter_host);
  EXPECT_GE(found.overlap_slowdown, 1);
}

TEST(ProfileLinks, has_none_between_hosts_where_there_is_one) {
  const cluster::Hardware found = measured(1, 3);  // the third one has no peer
  expect_sound(found.intra_host);
  EXPECT_FALSE(found.inter_host.has_value());
}

}  // namespace
}  // namespace switchyard::train
