#include "cost/link_cost.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"

namespace switchyard::cost {
namespace {

using testing::ElementsAre;

constexpr double kClose = 1e-15;

/// 2 hosts with 4 ranks each: ranks 0 to 3, 4 to 7. 100 bytes/s and 1 s inside a host, 10 bytes/s and 5 s between hosts.
cluster::Hardware toy(int shared_by = 1) {
  return {.hosts = 2,
          .devices_per_host = 4,
          .intra_host = {.latency = {1}, .bandwidth = {100}},
          .inter_host = cluster::LinkClass{.latency = {5}, .bandwidth = {10}, .shared_by = shared_by}};
}

const LinkRate kPlain{.latency = {2}, .bandwidth = {10}};

TEST(LinkRate, a_message_takes_latency_and_bytes_over_bandwidth) {
  EXPECT_EQ(kPlain.time(Bytes{50}), Seconds{7});  // 2 + 50/10
  EXPECT_EQ(kPlain.time(Bytes{0}), Seconds{0}) << "nothing is no message";
}

TEST(LinkRate, the_share_of_the_messages_size_counts) {
  const LinkRate curved{.latency = {2}, .bandwidth = {10}, .curve = {{{10, 0.5}, {1000, 1}}}};
  EXPECT_EQ(curved.time(Bytes{10}), Seconds{4});  // 2 + 10/(10 * 0.5)
  EXPECT_NEAR(curved.time(Bytes{100}).count, 2 + 100 / 7.5, 1e-12);
  EXPECT_EQ(curved.time(Bytes{2000}), Seconds{202});
}

TEST(Collectives, an_all_gather_sends_all_but_the_own_part_around_the_ring) {
  EXPECT_NEAR(all_gather(kPlain, 4, Bytes{400}).count, 3 * 2 + 0.75 * 40, kClose);
  EXPECT_EQ(reduce_scatter(kPlain, 4, Bytes{400}), Seconds{36});
  EXPECT_NEAR(all_gather(kPlain, 3, Bytes{100}).count, 2 * 2 + 2.0 / 3 * 10, 1e-12) << "parts needn't be whole bytes";
}

TEST(Collectives, an_all_reduce_is_a_reduce_scatter_and_an_all_gather) {
  EXPECT_EQ(all_reduce(kPlain, 4, Bytes{400}), Seconds{72});
}

TEST(Collectives, one_rank_or_no_bytes_take_no_time) {
  EXPECT_EQ(all_gather(kPlain, 1, Bytes{400}), Seconds{0});
  EXPECT_EQ(all_reduce(kPlain, 1, Bytes{400}), Seconds{0});
  EXPECT_EQ(all_gather(kPlain, 4, Bytes{0}), Seconds{0});
  EXPECT_THROW(all_gather(kPlain, 0, Bytes{1}), InternalError);
  EXPECT_THROW(all_gather(kPlain, 2, Bytes{-1}), InternalError);
}

TEST(Collectives, the_curve_is_read_at_the_bytes_of_one_message) {
  const LinkRate curved{.latency = {0}, .bandwidth = {10}, .curve = {{{100, 0.5}, {400, 1}}}};
  EXPECT_EQ(all_gather(curved, 4, Bytes{400}), Seconds{60});   // 3 messages of 100 bytes at 5 bytes/s
  EXPECT_EQ(all_gather(curved, 4, Bytes{1600}), Seconds{120});  // 3 messages of 400 bytes at 10 bytes/s
}

TEST(Links, a_message_uses_the_class_between_its_ranks) {
  const Links links(toy());
  EXPECT_EQ(links.alone(0, 3).time(Bytes{100}), Seconds{2});
  EXPECT_EQ(links.alone(3, 4).time(Bytes{100}), Seconds{15});
  EXPECT_EQ(links.alone(2, 2).time(Bytes{100}), Seconds{0}) << "a rank has its own data";
}

TEST(Links, a_ring_that_leaves_the_host_runs_at_the_speed_between_hosts) {
  const Links links(toy(4));
  const std::vector<int> inside{0, 1, 2, 3}, across{2, 3, 4, 5};
  EXPECT_EQ(links.ring(inside).bandwidth, BytesPerSecond{100});
  EXPECT_EQ(links.ring(across).latency, Seconds{5});
  EXPECT_EQ(links.ring(across).bandwidth, BytesPerSecond{10}) << "in host order one rank of each host sends over the NIC";
  EXPECT_EQ(all_gather(links.ring(across), 4, Bytes{400}), Seconds{45});  // 3 (5 + 100/10)
}

TEST(Links, ranks_that_send_over_one_nic_at_once_divide_it) {
  const std::vector<int> alternating{0, 4, 1, 5, 2, 6, 3, 7};
  EXPECT_EQ(Links(toy(4)).ring(alternating).bandwidth, BytesPerSecond{2.5}) << "one NIC a host";
  EXPECT_EQ(Links(toy(2)).ring(alternating).bandwidth, BytesPerSecond{5}) << "a NIC for two devices";
  EXPECT_EQ(Links(toy(1)).ring(alternating).bandwidth, BytesPerSecond{10}) << "a NIC for each";
  EXPECT_EQ(Links(toy(2)).ring(std::vector<int>{0, 4, 2, 6}).bandwidth, BytesPerSecond{10}) << "ranks 0 and 2 have different NICs";
  EXPECT_EQ(Links(toy(2)).ring(std::vector<int>{0, 4, 1, 5}).bandwidth, BytesPerSecond{5}) << "ranks 0 and 1 have one";
}

TEST(Links, groups_that_communicate_at_once_divide_the_nics_between_them) {
  // Data parallel groups beside tensor parallel ones: each has one rank on each host.
  const std::vector<std::vector<int>> groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(Links(toy(4)).together(ring_hops(groups)).bandwidth, BytesPerSecond{2.5});
  EXPECT_EQ(Links(toy(1)).together(ring_hops(groups)).bandwidth, BytesPerSecond{10});
  EXPECT_EQ(Links(toy(4)).ring(groups[0]).bandwidth, BytesPerSecond{10});
}

TEST(Links, sending_and_receiving_are_separate_and_the_fuller_one_counts) {
  const Links links(toy(4));
  EXPECT_EQ(links.together(std::vector<Hop>{{0, 4}, {4, 0}}).bandwidth, BytesPerSecond{10}) << "both directions at once";
  EXPECT_EQ(links.together(std::vector<Hop>{{0, 4}, {1, 5}}).bandwidth, BytesPerSecond{5});
  cluster::Hardware three = toy(4);
  three.hosts = 3;
  EXPECT_EQ(Links(three).together(std::vector<Hop>{{0, 8}, {4, 9}}).bandwidth, BytesPerSecond{5}) << "two hosts send to one";
  EXPECT_EQ(links.together(std::vector<Hop>{{0, 1}, {1, 2}, {0, 4}}).bandwidth, BytesPerSecond{10}) << "hops inside don't use the NIC";
}

TEST(Links, several_messages_of_one_rank_divide_its_own_port) {
  EXPECT_EQ(Links(toy()).together(std::vector<Hop>{{0, 1}, {0, 2}, {0, 3}}).bandwidth.count, 100.0 / 3);
  EXPECT_EQ(Links(toy()).together({}).time(Bytes{1}), Seconds{0});
}

TEST(Links, ranks_may_be_placed_in_any_order_that_fits_the_hosts) {
  const Links links(toy(2), {.host = {0, 1, 0, 1, 0}, .names = {}});  // devices 0, 0, 1, 1, 2
  EXPECT_EQ(links.alone(0, 2).bandwidth, BytesPerSecond{100});
  EXPECT_EQ(links.together(std::vector<Hop>{{0, 1}, {2, 3}}).bandwidth, BytesPerSecond{5});
  EXPECT_EQ(links.together(std::vector<Hop>{{0, 1}, {4, 3}}).bandwidth, BytesPerSecond{5}) << "received over one NIC";
  EXPECT_THROW(Links(toy(), {.host = {0, 1, 2}, .names = {}}), InternalError);
  EXPECT_THROW(Links(toy(), {.host = {0, 0, 0, 0, 0}, .names = {}}), InternalError);
}

TEST(RingHops, each_rank_sends_to_the_next_of_its_group) {
  const std::vector<std::vector<int>> groups{{3, 1, 2}, {7}, {4, 5}};
  EXPECT_THAT(ring_hops(groups), ElementsAre(Hop{3, 1}, Hop{1, 2}, Hop{2, 3}, Hop{4, 5}, Hop{5, 4}));
}

TEST(Overlapped, the_longer_one_and_the_slow_down_by_the_shorter_one) {
  EXPECT_NEAR(overlapped({10}, {4}, 1.25).count, 11, kClose);
  EXPECT_EQ(overlapped({4}, {10}, 1.25), Seconds{11}) << "either way round";
  EXPECT_EQ(overlapped({10}, {4}, 1), Seconds{10});
  EXPECT_EQ(overlapped({10}, {4}, 2), Seconds{14}) << "as one after the other";
  EXPECT_EQ(overlapped({10}, {0}, 1.5), Seconds{10});
  EXPECT_THROW(overlapped({1}, {1}, 0.5), InternalError);
}

}  // namespace
}  // namespace switchyard::cost
