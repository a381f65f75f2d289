#include "cost/exchange.hpp"

#include <gtest/gtest.h>

#include <map>

namespace switchyard::cost {
namespace {

// Inside a host 1 MB/s and 1 ms; between hosts 100 kB/s and 10 ms, two devices to a NIC.
cluster::Hardware two_hosts() {
  cluster::Hardware hardware;
  hardware.hosts = 2;
  hardware.devices_per_host = 4;
  hardware.intra_host = {{1e-3}, {1e6}, 1, {}};
  hardware.inter_host = cluster::LinkClass{{1e-2}, {1e5}, 2, {}};
  return hardware;
}

double seconds(std::vector<Message> messages) {
  const cluster::Hardware hardware = two_hosts();
  return exchange_over(hardware, hardware.placement(), messages).time.count;
}

TEST(Exchange, of_one_message_is_latency_and_bytes_over_bandwidth) {
  EXPECT_DOUBLE_EQ(seconds({{0, 1, 1000}}), 1e-3 + 1e-3);
  EXPECT_DOUBLE_EQ(seconds({{0, 4, 1000}}), 1e-2 + 1e-2);
  EXPECT_DOUBLE_EQ(seconds({{0, 1, 400}, {0, 1, 600}}), 1e-3 + 1e-3) << "one message";
}

TEST(Exchange, of_nothing_and_of_what_stays_takes_no_time) {
  EXPECT_EQ(seconds({}), 0);
  EXPECT_EQ(seconds({{0, 0, 1000}, {1, 2, 0}}), 0);
}

TEST(Exchange, goes_both_ways_at_once_but_one_after_the_other_through_a_port) {
  EXPECT_DOUBLE_EQ(seconds({{0, 1, 1000}, {1, 0, 1000}, {2, 3, 1000}}), 2e-3);
  EXPECT_DOUBLE_EQ(seconds({{0, 1, 1000}, {0, 2, 3000}}), 2e-3 + 4e-3);
  EXPECT_DOUBLE_EQ(seconds({{1, 0, 1000}, {2, 0, 3000}}), 2e-3 + 4e-3) << "receiving takes as long";
}

TEST(Exchange, of_parts_among_all_takes_as_long_as_the_ring) {
  const cluster::Hardware hardware = two_hosts();
  std::vector<Message> messages;
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to) messages.push_back({from, to, 5000});
  EXPECT_DOUBLE_EQ(exchange_over(hardware, hardware.placement(), messages).time.count, 3 * 1e-3 + 0.75 * 20000 / 1e6);
}

TEST(Exchange, of_devices_that_share_a_nic_divides_it) {
  EXPECT_DOUBLE_EQ(seconds({{0, 4, 1000}, {1, 6, 1000}}), 1e-2 + 2e-2);
  EXPECT_DOUBLE_EQ(seconds({{0, 4, 1000}, {2, 6, 1000}}), 1e-2 + 1e-2);
}

// Perlmutter's hosts: four devices, each pair of which has four of a device's twelve links. 76 GB/s in groups of two
// and 225 in groups of four: axonn-ai/Megatron-AxoNN, commit 8a4ae24, examples/comm_model.py, get_bw.
TEST(Exchange, of_pairs_with_links_of_their_own_is_quicker_in_larger_groups) {
  cluster::Hardware hardware = two_hosts();
  hardware.intra_host = {{0}, {225e9}, 1, {}};
  hardware.intra_host.pair_bandwidth = {76e9};
  const auto gathered = [&](const std::vector<std::vector<int>>& groups) {
    std::vector<Message> messages;
    for (const std::vector<int>& group : groups)
      for (const int from : group)
        for (const int to : group) messages.push_back({from, to, 12'000'000'000 / std::ssize(group)});
    return exchange_over(hardware, hardware.placement(), messages);
  };
  const Exchange two = gathered({{0, 1}}), four = gathered({{0, 1, 2, 3}});
  EXPECT_DOUBLE_EQ(two.time.count, 6.0 / 76);
  EXPECT_DOUBLE_EQ(four.time.count, 9.0 / 225) << "the port is full before its links";
  EXPECT_DOUBLE_EQ(gathered({{0, 1}, {2, 3}}).time.count, 6.0 / 76) << "other pairs have other links";
  EXPECT_DOUBLE_EQ(gathered({{0, 1}, {0, 2}}).time.count, 6.0 / 76) << "so have other peers";
  for (const Exchange::PortShare& use : two.ports) EXPECT_DOUBLE_EQ(use.share, 76.0 / 225);
  for (const Exchange::PortShare& use : four.ports) EXPECT_DOUBLE_EQ(use.share, 1);
}

// The bandwidth of a group across hosts depends on how many groups, one for each place on the faster axes inside a
// host, share a port (arXiv 2502.08145).
TEST(Exchange, of_groups_across_hosts_divides_the_ports_that_their_faster_axes_share) {
  cluster::Hardware hardware = two_hosts();
  const auto across = [&](const std::vector<int>& places) {
    std::vector<Message> messages;
    for (const int place : places) {
      messages.push_back({place, place + 4, 1000});
      messages.push_back({place + 4, place, 1000});
    }
    return exchange_over(hardware, hardware.placement(), messages).time.count;
  };
  const double one = across({0}) - 1e-2;
  for (const int shared_by : {1, 2, 4}) {
    hardware.inter_host->shared_by = shared_by;
    EXPECT_DOUBLE_EQ(across({0, 1}), 1e-2 + std::min(2, shared_by) * one);
    EXPECT_DOUBLE_EQ(across({0, 1, 2, 3}), 1e-2 + shared_by * one);
  }
}

TEST(Exchange, of_links_of_both_classes_takes_the_longer) {
  EXPECT_DOUBLE_EQ(seconds({{0, 1, 100000}, {0, 4, 100}}), 1e-3 + 1e-1);
}

TEST(Exchange, of_small_messages_heeds_the_curve) {
  cluster::Hardware hardware = two_hosts();
  hardware.intra_host.curve.points = {{1000, 0.5}, {1e6, 1}};
  const Message message{0, 1, 1000};
  EXPECT_DOUBLE_EQ(exchange_over(hardware, hardware.placement(), {&message, 1}).time.count, 1e-3 + 2e-3);
}

TEST(Exchange, of_what_is_added_up_takes_longer_by_the_class_of_link) {
  cluster::Hardware hardware = two_hosts();
  hardware.intra_host.sum_share = 0.5;
  const std::vector<Message> summed = {{0, 1, 1000, true}}, some = {{0, 1, 500, true}, {0, 1, 500, false}};
  EXPECT_DOUBLE_EQ(exchange_over(hardware, hardware.placement(), summed).time.count, 1e-3 + 2e-3);
  EXPECT_DOUBLE_EQ(exchange_over(hardware, hardware.placement(), some).time.count, 1e-3 + 1.5e-3);
}

TEST(Exchange, gives_for_how_much_of_it_each_port_is_busy) {
  const cluster::Hardware hardware = two_hosts();
  const std::vector<Message> messages = {{0, 1, 3000}, {2, 3, 1000}};
  const Exchange done = exchange_over(hardware, hardware.placement(), messages);
  EXPECT_DOUBLE_EQ(done.time.count, 4e-3);
  ASSERT_EQ(done.ports.size(), 4u) << "out of 0 and 2, into 1 and 3";
  for (const Exchange::PortShare& use : done.ports) EXPECT_DOUBLE_EQ(use.share, use.port.number < 2 ? 0.75 : 0.25);
}

TEST(Exchange, gives_how_much_of_both_directions_each_rank_uses) {
  const cluster::Hardware hardware = two_hosts();
  const auto devices = [&](const std::vector<Message>& messages) {
    return exchange_over(hardware, hardware.placement(), messages).devices;
  };
  const std::vector<Exchange::DeviceShare> one_way = devices({{0, 1, 3000}, {2, 3, 1000}});
  ASSERT_EQ(one_way.size(), 4u);
  for (const Exchange::DeviceShare& use : one_way) EXPECT_DOUBLE_EQ(use.share, use.rank < 2 ? 0.375 : 0.125);
  for (const Exchange::DeviceShare& use : devices({{0, 1, 1000}, {1, 2, 1000}, {2, 0, 1000}}))
    EXPECT_DOUBLE_EQ(use.share, 0.5) << "a ring, half of whose time is latency";
}

// 30% of a device while it sends and receives, half of that while it only sends.
TEST(Exchange, takes_most_of_the_device_that_it_uses_most) {
  cluster::Hardware hardware = two_hosts();
  hardware.overlap_slowdown = 1.3;
  hardware.intra_host.latency = {};
  const auto most = [&](const std::vector<Message>& messages) {
    return exchange_over(hardware, hardware.placement(), messages).most_of_a_device(hardware);
  };
  EXPECT_DOUBLE_EQ(most({{0, 1, 1000}}), 0.15);
  EXPECT_DOUBLE_EQ(most({{0, 1, 1000}, {1, 0, 1000}}), 0.3);
  EXPECT_DOUBLE_EQ(most({{0, 1, 1000}, {1, 0, 500}}), 0.15 + 0.075);
  EXPECT_EQ(most({}), 0);
}

TEST(Exchange, in_turn_with_another_takes_the_time_of_both_and_of_each_port_its_share) {
  const cluster::Hardware hardware = two_hosts();
  const auto over = [&](const std::vector<Message>& messages) {
    return exchange_over(hardware, hardware.placement(), messages);
  };
  const Exchange both = in_turn(over({{0, 1, 3000}}), over({{0, 2, 1000}, {3, 1, 1000}}), 3);
  EXPECT_DOUBLE_EQ(both.time.count, 4e-3 + 3 * 2e-3);
  std::map<std::pair<int, bool>, double> ports;
  for (const Exchange::PortShare& use : both.ports) ports[{use.port.number, use.port.out}] = use.share;
  const std::map<std::pair<int, bool>, double> expected = {
      {{0, true}, 0.6}, {{1, false}, 0.6}, {{2, false}, 0.3}, {{3, true}, 0.3}};
  ASSERT_EQ(ports.size(), expected.size());
  for (const auto& [port, share] : expected) EXPECT_DOUBLE_EQ(ports.at(port), share) << port.first;
  std::map<int, double> devices;
  for (const Exchange::DeviceShare& use : both.devices) devices[use.rank] += use.share;
  EXPECT_DOUBLE_EQ(devices.at(0), 0.3);
  EXPECT_DOUBLE_EQ(devices.at(3), 0.15);
  EXPECT_EQ(in_turn({}, {}).time.count, 0);
}

}  // namespace
}  // namespace switchyard::cost
