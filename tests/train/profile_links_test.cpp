#include "train/profile_links.hpp"

#include <gtest/gtest.h>

#include "../standin/device.hpp"
#include "runtime/device_order.hpp"
#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

cluster::Hardware measured(int hosts, int devices, const at::Device& device = at::kCPU) {
  cluster::Hardware found;
  RankSettings settings;
  settings.device = device;
  on_ranks(hosts * devices, {}, cluster::uniform(hosts, devices), {}, [&](comm::Fabric& fabric) {
    runtime::use_device(device);
    MeasurementBarrier barrier(fabric);
    cluster::Hardware hardware;
    hardware.hosts = hosts;
    hardware.devices_per_host = devices;
    profile_links(barrier, fabric, settings, hardware);
    if (fabric.rank() == 0) found = hardware;
  });
  return found;
}

void expect_sound(const cluster::LinkClass& link) {
  EXPECT_GT(link.latency.count, 0);
  EXPECT_GT(link.bandwidth.count, 1e6);
  EXPECT_EQ(link.curve.error(), "");
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

// Also those that exchange beside products. Without a device of its own a thread works with the first one of all.
TEST(ProfileLinks, of_devices_are_measured_by_threads_that_work_with_them) {
  standin::device();
  standin::start_over();
  standin::expect_choices(true);
  expect_sound(measured(1, 2, standin::device()).intra_host);
  EXPECT_EQ(standin::take_fault(), "");
  standin::expect_choices(false);
}

TEST(LinkOf, has_the_latency_and_rate_that_times_were_made_of) {
  std::vector<std::pair<double, double>> times;
  for (const double bytes : {4096.0, 65536.0, 1048576.0})
    times.emplace_back(bytes, 1e-5 + bytes / (bytes < 1e6 ? 1e9 : 2e9));
  const cluster::LinkClass link = link_of(1e-5, times);
  EXPECT_DOUBLE_EQ(link.latency.count, 1e-5);
  EXPECT_NEAR(link.bandwidth.count, 2e9, 1);
  ASSERT_EQ(link.curve.points.size(), 3u);
  EXPECT_NEAR(link.curve.at(4096), 0.5, 1e-9);
  EXPECT_NEAR(link.curve.at(65536), 0.5, 1e-9);
  EXPECT_NEAR(link.curve.at(1 << 20), 1, 1e-9);
}

TEST(LinkOf, does_not_mistake_a_buffer_on_the_way_for_the_link) {
  constexpr double kLatency = 1e-4, kRate = 50e6, kBuffer = 18e3;  // a link that lets 18 kB pass at once
  std::vector<std::pair<double, double>> times;
  for (double bytes = 1 << 12; bytes <= 1 << 24; bytes *= 4)
    times.emplace_back(bytes, 1.1 * kLatency + std::max(0.0, bytes - kBuffer) / kRate);
  const cluster::LinkClass link = link_of(kLatency, times);
  EXPECT_NEAR(link.bandwidth.count / kRate, 1, 0.02);
  EXPECT_EQ(link.curve.error(), "");
  EXPECT_NEAR(link.latency.count + times.back().first / (link.bandwidth.count * link.curve.at(times.back().first)),
              times.back().second, 0.01 * times.back().second);
}

TEST(LinkOf, has_a_rate_where_messages_of_all_sizes_take_equally_long) {
  const cluster::LinkClass link = link_of(1e-5, {{1e4, 1e-4}, {1e5, 1e-4}});
  EXPECT_NEAR(link.bandwidth.count, 1e5 / 9e-5, 1);
  EXPECT_EQ(link.curve.error(), "");
}

TEST(LinkOf, gives_no_message_more_time_than_a_bigger_one) {
  const cluster::LinkClass link =
      link_of(1e-5, {{1e4, 9e-4}, {1e5, 1.1e-4}, {1e6, 1.01e-3}});  // the first one was disturbed
  EXPECT_NEAR(link.latency.count + 1e4 / (link.bandwidth.count * link.curve.at(1e4)), 1.1e-4, 1e-9);
}

TEST(LinkOf, has_less_latency_than_any_message_takes) {
  const cluster::LinkClass link = link_of(5e-5, {{4096, 2e-5}, {65536, 1e-4}});
  EXPECT_DOUBLE_EQ(link.latency.count, 1.8e-5);
  EXPECT_EQ(link.curve.error(), "");
}

}  // namespace
}  // namespace switchyard::train
