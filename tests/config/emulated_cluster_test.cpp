#include "config/emulated_cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "../scratch.hpp"

namespace switchyard::config {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& spec) {
  return message_of([&] { emulated_hardware(spec); });
}

TEST(EmulatedCluster, is_written_as_hosts_links_and_memory) {
  const cluster::Hardware two = emulated_hardware("2x4:200Mbit/s,800Mbit/s,40MiB");
  EXPECT_EQ(two.hosts, 2);
  EXPECT_EQ(two.devices_per_host, 4);
  EXPECT_EQ(two.inter_host->bandwidth.count, 25e6);
  EXPECT_EQ(two.inter_host->shared_by, 4) << "a port of the host";
  EXPECT_EQ(two.intra_host.bandwidth.count, 100e6);
  EXPECT_EQ(two.device.memory.count, 40 << 20);
  EXPECT_EQ(two.placement().hosts(), 2);
  EXPECT_TRUE(two.placement().overlaps_collectives);
  EXPECT_FALSE(has_rates(two));
  const cluster::Hardware one = emulated_hardware("1x3:1GB/s,1GiB");
  EXPECT_EQ(one.ranks(), 3);
  EXPECT_EQ(one.intra_host.bandwidth.count, 1e9);
  EXPECT_FALSE(one.inter_host.has_value());
}

TEST(EmulatedCluster, may_be_a_cluster_by_name_whose_devices_are_replaced) {
  const cluster::Hardware named = emulated_hardware("h100-80g:2x4");
  EXPECT_EQ(named.ranks(), 8);
  EXPECT_GT(named.device.memory.count, i64{1} << 36);
  EXPECT_FALSE(has_rates(named));
  EXPECT_EQ(emulated_hardware("h100-80g", 16).hosts, 2);
  cluster::Device core{.name = "core", .memory = {1}, .launch = {1}, .alone_speedup = 2};
  core.rates[DType::f32] = {.matmul = {1e9}, .memory = {1e9}};
  const cluster::Hardware cores = with_cores(named, core);
  EXPECT_TRUE(has_rates(cores));
  EXPECT_EQ(cores.device.memory, named.device.memory);
  EXPECT_EQ(cores.device.reserve, named.device.reserve);
  EXPECT_EQ(cores.device.alone_speedup, 1) << "each device is a core of its own";
  EXPECT_EQ(cores.inter_host, named.inter_host);
}

TEST(EmulatedCluster, of_a_text_that_lacks_something_says_how_it_is_written) {
  EXPECT_THAT(refusal("2x4"), HasSubstr("2x4:200Mbit/s,800Mbit/s,40MiB"));
  EXPECT_THAT(refusal("2x4:800Mbit/s,40MiB"),
              HasSubstr("needs three things behind the colon: the bandwidth of a host, that of a device inside, and "
                        "its memory, such as 2x4:200Mbit/s,800Mbit/s,40MiB"));
  EXPECT_THAT(refusal("1x4:200Mbit/s,800Mbit/s,40MiB"), HasSubstr("such as 1x4:800Mbit/s,40MiB"));
  EXPECT_THAT(refusal("2x4:200Mbit/s,quick,40MiB"), HasSubstr("\"quick\" is not a bandwidth"));
  EXPECT_THAT(refusal("2x4:200Mbit/s,800Mbit/s,much"), HasSubstr("much"));
  EXPECT_THAT(refusal("2x4:0,1GB/s,40MiB"), HasSubstr("must be above 0"));
  EXPECT_EQ(refusal("1x2:800,40MiB"),
            "the emulated cluster \"1x2:800,40MiB\" has \"800\" without a unit. Write one, such as 800Mbit/s.");
  EXPECT_EQ(refusal("1x2:1GB/s,40"),
            "the emulated cluster \"1x2:1GB/s,40\" has \"40\" without a unit. Write one, such as 40MiB.");
  for (const std::string hosts : {"0x4", "2x99999999999", "-1x2"})
    EXPECT_EQ(refusal(hosts + ":1GB/s,1GB/s,1GiB"),
              "the emulated cluster \"" + hosts + ":1GB/s,1GB/s,1GiB\" has " + hosts +
                  " hosts and devices per host. Each is a number from 1 to 1000000.");
  EXPECT_THAT(refusal("nowhere"), HasSubstr("neither a file nor a known name"));
}

TEST(EmulatedCluster, takes_profiles_by_processor_time_alone) {
  const Scratch scratch;
  Profile profile{.hardware = emulated_hardware("1x2:1GB/s,1GiB"),
                  .machine = {.processor = "P", .device = "cpu", .fabric = "threads", .version = "1"}};
  profile.machine.cores = profile.machine.ranks = profile.machine.threads = 2;
  profile.hardware.device.name = "core";
  profile.hardware.device.rates[DType::f32] = {.matmul = {1e9}, .memory = {1e9}};
  const std::string path = scratch.file("p.json", to_json(profile));
  EXPECT_THAT(refusal(path), HasSubstr("with which nothing can be emulated. Measure one by processor time"));
  profile.machine.fabric = kEmulatedFabric;
  scratch.file("p.json", to_json(profile));
  const cluster::Hardware found = emulated_hardware(path);
  EXPECT_TRUE(has_rates(found));
  EXPECT_EQ(found, profile.hardware);
}

}  // namespace
}  // namespace switchyard::config
