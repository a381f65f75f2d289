#include "config/hardware.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "../message_of.hpp"
#include "../scratch.hpp"

namespace switchyard::config {
namespace {

using cluster::EfficiencyCurve;
using cluster::Hardware;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// The messages below contain line numbers of this text.
constexpr const char* kGood = R"(name = "toy"
hosts = 2
devices_per_host = 4
overlap_slowdown = 1.25
[device]
name = "chip"
memory = "16 GiB"
memory_bandwidth = "100 GB/s"
launch = "5 us"
memory_curve = [["64 KiB", 0.5], ["1 MiB", 1.0]]
width_curve = [[16, 0.5], [64, 1]]
[device.fp32]
matmul = "1 TFLOP/s"
matmul_curve = [[1e6, 0.5], [1e9, 0.9]]
[device.bf16]
matmul = 2e12
memory_bandwidth = 5e10
[links.intra_host]
latency = "2 us"
bandwidth = "10 GB/s"
[links.inter_host]
latency = "20 us"
bandwidth = "8 Gbit/s"
shared_by = 2
curve = [[1024, 0.4], ["1 MiB", 0.8]]
)";

/// kGood with one piece replaced by another.
std::string with(const std::string& piece, const std::string& other) {
  std::string text = kGood;
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), other);
}

std::string error(const std::string& text, std::optional<int> ranks = std::nullopt) {
  return message_of([&] { hardware_from_toml(text, "my.toml", ranks); });
}

std::string error_with(const std::string& piece, const std::string& other) { return error(with(piece, other)); }

TEST(HardwareFile, every_key_is_read) {
  const Hardware hardware = hardware_from_toml(kGood, "my.toml");
  EXPECT_EQ(hardware.name, "toy");
  EXPECT_EQ(hardware.hosts, 2);
  EXPECT_EQ(hardware.devices_per_host, 4);
  EXPECT_EQ(hardware.overlap_slowdown, 1.25);
  EXPECT_EQ(hardware.device.name, "chip");
  EXPECT_EQ(hardware.device.memory, Bytes{i64{16} << 30});
  EXPECT_DOUBLE_EQ(hardware.device.launch.count, 5e-6);
  EXPECT_EQ(hardware.device.memory_curve, (EfficiencyCurve{{{65536, 0.5}, {1048576, 1}}}));
  EXPECT_EQ(hardware.device.width_curve, (EfficiencyCurve{{{16, 0.5}, {64, 1}}}));
  ASSERT_EQ(hardware.device.rates.size(), 2u);
  EXPECT_EQ(hardware.device.rates_of(DType::f32),
            (cluster::Rates{{1e12}, {100e9}, EfficiencyCurve{{{1e6, 0.5}, {1e9, 0.9}}}}));
  EXPECT_EQ(hardware.device.rates_of(DType::bf16), (cluster::Rates{{2e12}, {5e10}, {}}))
      << "its own memory bandwidth, in plain numbers";
  EXPECT_DOUBLE_EQ(hardware.intra_host.latency.count, 2e-6);
  EXPECT_EQ(hardware.intra_host.bandwidth, BytesPerSecond{10e9});
  EXPECT_EQ(hardware.intra_host.shared_by, 1);
  ASSERT_TRUE(hardware.inter_host.has_value());
  EXPECT_EQ(hardware.inter_host->bandwidth, BytesPerSecond{1e9});
  EXPECT_EQ(hardware.inter_host->shared_by, 2);
  EXPECT_EQ(hardware.inter_host->curve, (EfficiencyCurve{{{1024, 0.4}, {1048576, 0.8}}}));
}

TEST(HardwareFile, one_host_needs_no_links_between_hosts) {
  std::string text = with("hosts = 2", "hosts = 1");
  text.resize(text.find("[links.inter_host]"));
  EXPECT_FALSE(hardware_from_toml(text, "my.toml").inter_host.has_value());
  text = kGood;
  text.resize(text.find("[links.inter_host]"));
  EXPECT_EQ(error(text), "my.toml:18: [links.inter_host] is missing; it gives the links between hosts.");
}

TEST(HardwareFile, quantities_out_of_range_are_refused) {
  for (const char* memory : {"1e300", "\"1e10 TB\"", "1e-300", "-1e300"})
    EXPECT_THAT(error_with("memory = \"16 GiB\"", std::string("memory = ") + memory), HasSubstr("device.memory = "))
        << memory;
  EXPECT_THAT(error_with("memory = \"16 GiB\"", "memory = 1e300"), HasSubstr("is out of range: use 1e-18 to 1e+18."));
}

TEST(HardwareFile, hosts_may_have_names) {
  const std::string named = with("hosts = 2", "hosts = [\"alpha\", \"beta\"]");
  EXPECT_THAT(hardware_from_toml(named, "my.toml").placement().names, ElementsAre("alpha", "beta"));
  EXPECT_EQ(hardware_from_toml(named, "my.toml").ranks(), 8);
  EXPECT_THAT(hardware_from_toml(named, "my.toml", 3).host_names, ElementsAre("alpha"));
  EXPECT_EQ(error_with("hosts = 2", "hosts = [\"a\", \"b\", \"a\"]"),
            "my.toml:2: hosts names \"a\" twice; name each host once.");
  EXPECT_EQ(error_with("hosts = 2", "hosts = [\"a\", 7]"),
            "my.toml:2: hosts has an entry 7; a list holds names of hosts, such as [\"alpha\", \"beta\"].");
  EXPECT_EQ(error_with("hosts = 2", "hosts = []"),
            "my.toml:2: hosts is empty; name at least one host, or leave the key out and let the ranks decide.");
}

TEST(HardwareFile, the_ranks_asked_for_get_whole_hosts_or_a_part_of_one) {
  const auto taken = [](std::optional<int> ranks) {
    const Hardware hardware = hardware_from_toml(kGood, "my.toml", ranks);
    return std::pair(hardware.hosts, hardware.devices_per_host);
  };
  EXPECT_EQ(taken(std::nullopt), std::pair(2, 4));
  EXPECT_EQ(taken(8), std::pair(2, 4));
  EXPECT_EQ(taken(4), std::pair(1, 4));
  EXPECT_EQ(taken(3), std::pair(1, 3));
  EXPECT_EQ(taken(1), std::pair(1, 1));
  EXPECT_EQ(error(kGood, 6), "my.toml: 6 ranks are not a whole number of hosts with 4 devices each. Use 4 or 8 ranks.");
  EXPECT_EQ(
      error(kGood, 12),
      "my.toml:2: 12 ranks don't fit on 2 hosts with 4 devices each. Use at most 8 ranks, or a cluster of 3 hosts.");
  EXPECT_EQ(error(with("hosts = 2", "hosts = 1"), 5),
            "my.toml:2: 5 ranks don't fit on 1 host with 4 devices. Use at most 4 ranks, or a cluster of 2 hosts.");
  EXPECT_EQ(error(kGood, 0), "my.toml: 0 ranks; at least 1 and at most 1000000 are needed.");
}

TEST(HardwareFile, hosts_left_open_follow_from_the_ranks) {
  const std::string open = with("hosts = 2\n", "");
  EXPECT_EQ(hardware_from_toml(open, "my.toml", 4096).hosts, 1024);
  EXPECT_EQ(hardware_from_toml(open, "my.toml", 2).placement().ranks(), 2);
  EXPECT_EQ(error(open),
            "my.toml: hosts is not set, and the number of ranks is not given. Set hosts, or pass --ranks N.");
  EXPECT_EQ(error(open, 10),
            "my.toml: 10 ranks are not a whole number of hosts with 4 devices each. Use 8 or 12 ranks.");
}

TEST(HardwareFile, a_part_of_the_memory_may_be_kept_free) {
  EXPECT_EQ(hardware_from_toml(kGood, "my.toml").device.usable(), Bytes{i64{16} << 30});
  EXPECT_EQ(hardware_from_toml(with("launch = \"5 us\"", "launch = \"5 us\"\nreserve = \"3 GiB\""), "my.toml")
                .device.usable(),
            Bytes{i64{13} << 30});
  EXPECT_EQ(hardware_from_toml(with("launch = \"5 us\"", "launch = \"5 us\"\nreserve = 0"), "my.toml").device.usable(),
            Bytes{i64{16} << 30});
  EXPECT_EQ(error_with("launch = \"5 us\"", "launch = \"5 us\"\nreserve = \"16 GiB\""),
            "my.toml:10: device.reserve = \"16 GiB\" must be below device.memory.");
  EXPECT_EQ(error_with("launch = \"5 us\"", "launch = \"5 us\"\nreserve = -1"),
            "my.toml:10: device.reserve = -1 must be at least 0.");
}

TEST(HardwareFile, devices_are_cpus_unless_the_file_says_that_they_have_cuda) {
  const auto of_type = [](const std::string& type) {
    return with("launch = \"5 us\"", "launch = \"5 us\"\ntype = " + type);
  };
  EXPECT_EQ(hardware_from_toml(kGood, "my.toml").device.type, cluster::DeviceType::cpu);
  EXPECT_EQ(hardware_from_toml(of_type("\"cpu\""), "my.toml").device.type, cluster::DeviceType::cpu);
  EXPECT_EQ(hardware_from_toml(of_type("\"cuda\""), "my.toml").device.type, cluster::DeviceType::cuda);
  for (const std::string wrong : {"\"gpu\"", "\"auto\"", "1"})
    EXPECT_THAT(error_with("launch = \"5 us\"", "launch = \"5 us\"\ntype = " + wrong),
                HasSubstr(fmt::format("my.toml:10: device.type = {} must be \"cpu\" or \"cuda\".", wrong)));
}

TEST(HardwareFile, kernels_of_devices_are_those_of_this_program_unless_the_file_says) {
  EXPECT_FALSE(hardware_from_toml(kGood, "my.toml").placement().torch_elements);
  EXPECT_TRUE(hardware_from_toml(with("launch = \"5 us\"", "launch = \"5 us\"\ntorch_elements = true"), "my.toml")
                  .placement()
                  .torch_elements);
}

TEST(HardwareFile, the_host_may_take_time_to_issue_operators) {
  const cluster::Device none = hardware_from_toml(kGood, "my.toml").device;
  EXPECT_EQ(none.host_launch, Seconds{0});
  EXPECT_FALSE(none.host_waits);
  const cluster::Device slow =
      hardware_from_toml(with("launch = \"5 us\"", "launch = \"5 us\"\nhost_launch = \"90 us\"\nhost_waits = true"),
                         "my.toml")
          .device;
  EXPECT_DOUBLE_EQ(slow.host_launch.count, 9e-5);
  EXPECT_TRUE(slow.host_waits);
  EXPECT_EQ(error_with("launch = \"5 us\"", "launch = \"5 us\"\nhost_launch = -1"),
            "my.toml:10: device.host_launch = -1 must be at least 0.");
  EXPECT_EQ(error_with("launch = \"5 us\"", "launch = \"5 us\"\nhost_waits = 1"),
            "my.toml:10: device.host_waits = 1 is an integer; true or false is needed.");
}

TEST(HardwareFile, collectives_overlap_products_unless_the_file_says_that_they_do_not) {
  EXPECT_TRUE(hardware_from_toml(kGood, "my.toml").placement().overlaps_collectives);
  const std::string key = "overlap_slowdown = 1.25";
  EXPECT_FALSE(
      hardware_from_toml(with(key, key + "\noverlap_collectives = false"), "my.toml").placement().overlaps_collectives);
  EXPECT_THAT(error_with(key, key + "\noverlap_collectives = 0"),
              testing::HasSubstr("overlap_collectives = 0 is an integer; true or false is needed."));
}

TEST(HardwareFile, fused_attention_may_have_rates_of_its_own) {
  const auto rates = [](const std::string& text) {
    return hardware_from_toml(text, "my.toml").device.rates_of(DType::f32);
  };
  EXPECT_EQ(rates(kGood).attention, FlopsPerSecond{0});
  const cluster::Rates own = rates(
      with("matmul = \"1 TFLOP/s\"", "matmul = \"1 TFLOP/s\"\nattention = \"500 GFLOP/s\"\nattention_backward = 4e11"));
  EXPECT_EQ(own.attention, FlopsPerSecond{5e11});
  EXPECT_EQ(own.attention_backward, FlopsPerSecond{4e11});
}

TEST(HardwareFile, codecs_may_have_rates) {
  EXPECT_TRUE(hardware_from_toml(kGood, "my.toml").device.codecs.empty());
  const std::string key = "launch = \"5 us\"";
  EXPECT_EQ(hardware_from_toml(with(key, key + "\ncodecs.int8 = {encode = \"3 GB/s\", decode = 7e9}"), "my.toml")
                .device.codecs,
            (std::map<std::string, cluster::CodecRates>{{"int8", {{3e9}, {7e9}}}}));
  EXPECT_EQ(hardware_from_toml(
                with(key, key + "\ncodecs.top-1-of-32 = {encode = 1e9, decode = 7e9, message = \"2 us\"}"), "my.toml")
                .device.codecs,
            (std::map<std::string, cluster::CodecRates>{{"top-1-of-32", {{1e9}, {7e9}, {2e-6}}}}));
  EXPECT_EQ(error_with(key, key + "\ncodecs.int9 = {encode = 1, decode = 1}"),
            "my.toml:10: device.codecs.int9 is not a key. Did you mean device.codecs.int8?");
  EXPECT_THAT(error_with(key, key + "\ncodecs.int8 = {encode = 1e9}"), testing::HasSubstr("device.codecs.int8.decode"));
}

TEST(HardwareFile, devices_may_slow_each_other_down) {
  EXPECT_EQ(hardware_from_toml(kGood, "my.toml").device.alone_speedup, 1);
  EXPECT_EQ(hardware_from_toml(with("launch = \"5 us\"", "launch = \"5 us\"\nalone_speedup = 1.5"), "my.toml")
                .device.alone_speedup,
            1.5);
  EXPECT_EQ(
      error_with("launch = \"5 us\"", "launch = \"5 us\"\nalone_speedup = 0.5"),
      "my.toml:10: device.alone_speedup = 0.5 must be at least 1 (the devices of a host don't slow each other down).");
}

// Four devices on as much as two of them can use.
TEST(HardwareFile, devices_leave_the_others_of_their_host_what_they_lack_without_a_rank) {
  const std::string key = "launch = \"5 us\"", text = with(key, key + "\nalone_speedup = 2");
  for (const auto& [ranks, speedup, faster] :
       {std::tuple(8, 2.0, 1.0), {4, 2.0, 1.0}, {3, 1.5, 4.0 / 3}, {2, 1.0, 2.0}, {1, 1.0, 2.0}}) {
    const cluster::Device device = hardware_from_toml(text, "my.toml", ranks).device;
    EXPECT_NEAR(device.alone_speedup, speedup, 1e-12) << ranks;
    EXPECT_NEAR(device.rates_of(DType::f32).matmul.count, faster * 1e12, 1) << ranks;
    EXPECT_NEAR(device.rates_of(DType::f32).memory.count, faster * 1e11, 1) << ranks;
    EXPECT_NEAR(device.launch.count, 5e-6 / faster, 1e-12) << ranks;
  }
  EXPECT_EQ(hardware_from_toml(kGood, "my.toml", 1).device, hardware_from_toml(kGood, "my.toml", 8).device);
}

TEST(HardwareFile, two_devices_may_have_less_than_a_port_between_them) {
  EXPECT_EQ(hardware_from_toml(kGood, "my.toml").intra_host.pair_rate(), BytesPerSecond{1e10});
  const cluster::Hardware pairs = hardware_from_toml(
      with("bandwidth = \"10 GB/s\"", "bandwidth = \"10 GB/s\"\npair_bandwidth = \"4 GB/s\""), "my.toml");
  EXPECT_EQ(pairs.intra_host.pair_rate(), BytesPerSecond{4e9});
  EXPECT_EQ(pairs.intra_host.bandwidth, BytesPerSecond{1e10});
  EXPECT_EQ(
      error_with("bandwidth = \"10 GB/s\"", "bandwidth = \"10 GB/s\"\npair_bandwidth = \"20 GB/s\""),
      "my.toml:21: links.intra_host.pair_bandwidth = \"20 GB/s\" must be at most the bandwidth of a port, 10 GB/s.");
  EXPECT_EQ(error_with("bandwidth = \"10 GB/s\"", "bandwidth = \"10 GB/s\"\nsum_share = 1.5"),
            "my.toml:21: links.intra_host.sum_share = 1.5 must be at most 1.");
  EXPECT_EQ(error_with("bandwidth = \"10 GB/s\"", "bandwidth = \"10 GB/s\"\noverlap_slowdown = 3"),
            "my.toml:21: links.intra_host.overlap_slowdown = 3 must be at least 1 (no slowdown) and at most 2 "
            "(serialized).");
  EXPECT_EQ(error_with("bandwidth = \"10 GB/s\"", "bandwidth = \"10 GB/s\"\npair_bandwidth = -1"),
            "my.toml:21: links.intra_host.pair_bandwidth = -1 must be above 0.");
}

TEST(HardwareFile, ranks_in_lockstep_have_a_curve_by_seconds) {
  const std::string curve =
      with("width_curve = [[16, 0.5], [64, 1]]", "lockstep_curve = [[\"1 ms\", 0.75], [0.5, 0.9]]");
  EXPECT_EQ(hardware_from_toml(curve, "my.toml").device.lockstep_curve, (EfficiencyCurve{{{1e-3, 0.75}, {0.5, 0.9}}}));
  EXPECT_THAT(error_with("width_curve = [[16, 0.5], [64, 1]]", "lockstep_curve = [[\"1 kB\", 0.75]]"),
              testing::HasSubstr("device.lockstep_curve has a point [\"1 kB\", 0.75]: \"1 kB\" is not a duration."));
}

TEST(HardwareFile, a_missing_constant_is_named_with_what_it_is) {
  EXPECT_EQ(error_with("memory = \"16 GiB\"\n", ""),
            "my.toml:5: device.memory is missing; an amount of memory such as \"80 GB\" is needed.");
  EXPECT_EQ(error_with("memory_bandwidth = \"100 GB/s\"\n", ""),
            "my.toml:5: device.memory_bandwidth is missing; a bandwidth such as \"300 GB/s\" is needed.");
  EXPECT_EQ(error_with("launch = \"5 us\"\n", ""),
            "my.toml:5: device.launch is missing; a duration such as \"5 us\" is needed.");
  EXPECT_EQ(error_with("matmul = \"1 TFLOP/s\"\n", ""),
            "my.toml:12: device.fp32.matmul is missing; a compute rate such as \"312 TFLOP/s\" is needed.");
  EXPECT_EQ(error_with("latency = \"20 us\"\n", ""),
            "my.toml:21: links.inter_host.latency is missing; a duration such as \"5 us\" is needed.");
  EXPECT_EQ(error_with("bandwidth = \"10 GB/s\"\n", ""),
            "my.toml:18: links.intra_host.bandwidth is missing; a bandwidth such as \"300 GB/s\" is needed.");
  EXPECT_EQ(error_with("devices_per_host = 4\n", ""), "my.toml: devices_per_host is missing; an integer is needed.");
  EXPECT_EQ(error_with("overlap_slowdown = 1.25\n", ""),
            "my.toml: overlap_slowdown is missing; a factor from 1 to 2 is needed.");
  EXPECT_EQ(error_with("name = \"toy\"\n", ""), "my.toml: name is missing; a string is needed.");
}

TEST(HardwareFile, a_missing_section_is_one_error) {
  std::string text = kGood;
  text.resize(text.find("[links.intra_host]"));
  EXPECT_EQ(error(text), "my.toml: [links] is missing; it gives the links inside a host and between hosts.");
  EXPECT_EQ(error("name = \"toy\"\nhosts = 1\ndevices_per_host = 1\noverlap_slowdown = 1\n"
                  "[links.intra_host]\nlatency = 0\nbandwidth = 1\n"),
            "my.toml: [device] is missing; it gives what one device can do.");
  text = kGood;
  text.erase(text.find("[device.fp32]"), text.find("[links.intra_host]") - text.find("[device.fp32]"));
  EXPECT_EQ(error(text),
            "my.toml:5: device has no rates; add a section [device.bf16], [device.fp32] or [device.fp64] with matmul.");
}

TEST(HardwareFile, numbers_that_no_machine_has_are_refused) {
  EXPECT_EQ(error_with("hosts = 2", "hosts = 0"),
            "my.toml:2: hosts = 0 must be at least 1 and at most 1000000; leave it out to let the ranks decide.");
  EXPECT_EQ(error_with("devices_per_host = 4", "devices_per_host = 0"),
            "my.toml:3: devices_per_host = 0 must be at least 1 and at most 1000000.");
  EXPECT_EQ(error_with("hosts = 2", "hosts = 1000000"),
            "my.toml:2: 1000000 hosts with 4 devices each are 4000000 devices; at most 1000000 are supported.");
  EXPECT_EQ(error_with("overlap_slowdown = 1.25", "overlap_slowdown = 0.9"),
            "my.toml:4: overlap_slowdown = 0.9 must be at least 1 (no slowdown) and at most 2 (serialized).");
  EXPECT_EQ(error_with("overlap_slowdown = 1.25", "overlap_slowdown = 3"),
            "my.toml:4: overlap_slowdown = 3 must be at least 1 (no slowdown) and at most 2 (serialized).");
  EXPECT_EQ(error_with("memory = \"16 GiB\"", "memory = -1"), "my.toml:7: device.memory = -1 must be above 0.");
  EXPECT_EQ(error_with("launch = \"5 us\"", "launch = -1e-6"), "my.toml:9: device.launch = -1e-06 must be at least 0.");
  EXPECT_EQ(error_with("matmul = 2e12", "matmul = 0"), "my.toml:16: device.bf16.matmul = 0 must be above 0.");
  EXPECT_EQ(error_with("bandwidth = \"8 Gbit/s\"", "bandwidth = inf"),
            "my.toml:23: links.inter_host.bandwidth = inf must be above 0.");
  EXPECT_EQ(error_with("shared_by = 2", "shared_by = 5"),
            "my.toml:24: links.inter_host.shared_by = 5 must be at least 1 and at most 4.");
  EXPECT_EQ(error_with("latency = \"2 us\"", "latency = 0"), "no error") << "a latency of nothing is possible";
}

TEST(HardwareFile, wrong_types_and_units_say_what_is_needed) {
  EXPECT_EQ(error_with("hosts = 2", "hosts = 2.5"),
            "my.toml:2: hosts = 2.5 is a fraction; an integer or a list of names is needed.");
  EXPECT_EQ(error_with("devices_per_host = 4", "devices_per_host = \"4\""),
            "my.toml:3: devices_per_host = \"4\" is a string; an integer is needed.");
  EXPECT_EQ(error_with("name = \"toy\"", "name = 5"), "my.toml:1: name = 5 is an integer; a string is needed.");
  EXPECT_EQ(error_with("overlap_slowdown = 1.25", "overlap_slowdown = \"much\""),
            "my.toml:4: overlap_slowdown = \"much\" is a string; a factor from 1 to 2 is needed.");
  EXPECT_EQ(
      error_with("bandwidth = \"10 GB/s\"", "bandwidth = \"10 GB\""),
      "my.toml:20: links.intra_host.bandwidth = \"10 GB\" is not a bandwidth. Write a number and MB/s, GB/s, TB/s "
      "(or MiB/s, GiB/s, "
      "TiB/s; Mbit/s, Gbit/s, Tbit/s), such as \"300 GB/s\".");
  EXPECT_EQ(error_with("latency = \"2 us\"", "latency = [2]"),
            "my.toml:19: links.intra_host.latency is a list; a duration such as \"5 us\" is needed.");
  EXPECT_EQ(error_with("[device.fp32]\nmatmul = \"1 TFLOP/s\"\nmatmul_curve = [[1e6, 0.5], [1e9, 0.9]]", "fp32 = 1e12"),
            "my.toml:12: device.fp32 = 1000000000000.0 is a fraction; a section [device.fp32] is needed.");
}

TEST(HardwareFile, an_unknown_key_names_the_nearest) {
  EXPECT_EQ(error_with("launch =", "launch = 0\nlaunches ="),
            "my.toml:10: device.launches is not a key. Did you mean device.launch?");
  EXPECT_EQ(error_with("hosts = 2", "hosts = 2\nlaunch = 1"),
            "my.toml:3: launch is not a key. Did you mean device.launch?");
  EXPECT_EQ(error_with("shared_by = 2", "shared_bye = 2"),
            "my.toml:24: links.inter_host.shared_bye is not a key. Did you mean links.inter_host.shared_by?");
  EXPECT_EQ(error_with("[device.bf16]", "[device.bf17]"),
            "my.toml:15: device.bf17 is not a key. Did you mean device.bf16?");
  EXPECT_EQ(error_with("hosts = 2", "hosts = 2\nfrobnicate_everything = 1"),
            "my.toml:3: frobnicate_everything is not a key. docs/cluster-format.md lists all keys.");
  std::string one_host = with("hosts = 2", "hosts = 1");
  one_host.replace(one_host.find("[links.inter_host]"), 18, "[links.inter_hosts]");
  EXPECT_EQ(error(one_host), "my.toml:21: links.inter_hosts is not a key. Did you mean links.inter_host?");
}

TEST(HardwareFile, a_curve_must_be_pairs_that_rise_in_size_with_shares_up_to_1) {
  const auto curve = [](const std::string& points) {
    return error_with("memory_curve = [[\"64 KiB\", 0.5], [\"1 MiB\", 1.0]]", "memory_curve = " + points);
  };
  EXPECT_EQ(curve("0.5"),
            "my.toml:10: device.memory_curve = 0.5 is a fraction; a list of pairs [size, share] is needed.");
  EXPECT_EQ(curve("[]"),
            "my.toml:10: device.memory_curve has no points; leave it out where the peak is reached at any size.");
  EXPECT_EQ(curve("[0.5, 0.6]"), "my.toml:10: device.memory_curve must be a list of pairs [size, share].");
  EXPECT_EQ(curve("[[1, 0.5, 2]]"), "my.toml:10: device.memory_curve must be a list of pairs [size, share].");
  EXPECT_EQ(curve("[[1, \"half\"]]"),
            "my.toml:10: device.memory_curve has a point [1, \"half\"]; sizes are bytes, such as 65536 or \"64 KiB\", "
            "shares are numbers.");
  EXPECT_EQ(curve("[[\"1 MiB\", 0.5], [\"64 KiB\", 0.6]]"),
            "my.toml:10: device.memory_curve is wrong: point 2 has size 65536 after 1048576; sizes must rise.");
  EXPECT_EQ(curve("[[\"1 MiB\", 1.2]]"),
            "my.toml:10: device.memory_curve is wrong: point 1 has share 1.2; a share must be above 0 and at most 1.");
  EXPECT_EQ(curve("[[\"1 MiB\", 0]]"),
            "my.toml:10: device.memory_curve is wrong: point 1 has share 0; a share must be above 0 and at most 1.");
  EXPECT_EQ(curve("[[0, 0.5]]"),
            "my.toml:10: device.memory_curve is wrong: point 1 has size 0; a size must be above 0.");
  EXPECT_EQ(curve("[[1, 0.1], [100, 0.9]]"),
            "my.toml:10: device.memory_curve is wrong: from point 1 to 2 the share rises so fast that a bigger size "
            "takes less time; raise "
            "share 0.1 to 0.17 or more.");
  EXPECT_EQ(
      curve("[[\"1 mile\", 0.5]]"),
      "my.toml:10: device.memory_curve has a point [\"1 mile\", 0.5]: \"1 mile\" is not an amount of memory. Write a "
      "number and B, KiB, "
      "MiB, GiB, TiB (or kB, MB, GB, TB), such as \"16 GiB\".");
  EXPECT_EQ(error_with("[[16, 0.5], [64, 1]]", "[[\"16 B\", 0.3]]"),
            "my.toml:11: device.width_curve has a point [\"16 B\", 0.3]; sizes are numbers, shares are numbers.");
}

TEST(HardwareFile, all_errors_come_together) {
  std::string text = with("hosts = 2", "hosts = 0");
  text.replace(text.find("launch = \"5 us\""), 15, "lunch = \"5 us\"");
  EXPECT_EQ(error(text),
            "3 errors in the cluster file:\n"
            "  my.toml:2: hosts = 0 must be at least 1 and at most 1000000; leave it out to let the ranks decide.\n"
            "  my.toml:5: device.launch is missing; a duration such as \"5 us\" is needed.\n"
            "  my.toml:9: device.lunch is not a key. Did you mean device.launch?");
}

TEST(ShippedClusters, each_loads_and_is_named_as_its_file) {
  std::string names;
  for (const ShippedCluster& shipped : shipped_clusters()) {
    const Hardware hardware = load_hardware(std::string(shipped.name), 4);
    EXPECT_EQ(hardware.name, shipped.name);
    EXPECT_EQ(hardware.ranks(), 4);
    for (const DType type : {DType::f64, DType::f32, DType::bf16})
      EXPECT_GT(hardware.device.rates_of(type).matmul.count, 0);
    names += hardware.name + " ";
  }
  EXPECT_EQ(names, "a100-80g a800-80g demo h100-80g h200-141g ");
}

TEST(ShippedClusters, their_constants_are_those_of_the_data_sheets) {
  const Hardware a100 = load_hardware("a100-80g", 64);
  EXPECT_EQ(a100.hosts, 8);
  EXPECT_EQ(a100.devices_per_host, 8);
  EXPECT_EQ(a100.device.rates_of(DType::bf16).matmul, FlopsPerSecond{312e12});
  EXPECT_EQ(a100.device.rates_of(DType::bf16).memory, BytesPerSecond{2039e9});
  EXPECT_EQ(a100.intra_host.bandwidth, BytesPerSecond{300e9});
  EXPECT_EQ(a100.inter_host->bandwidth, BytesPerSecond{25e9});
  Hardware a800 = load_hardware("a800-80g", 64);
  EXPECT_EQ(a800.intra_host.bandwidth, BytesPerSecond{200e9});
  EXPECT_EQ(a800.device.rates, a100.device.rates);
  const Hardware h100 = load_hardware("h100-80g", 8), h200 = load_hardware("h200-141g", 8);
  EXPECT_EQ(h100.device.rates_of(DType::bf16).matmul, FlopsPerSecond{989e12});
  EXPECT_EQ(h100.device.rates_of(DType::f32).memory, BytesPerSecond{3.35e12});
  EXPECT_EQ(h100.intra_host.bandwidth, BytesPerSecond{450e9});
  EXPECT_EQ(h100.inter_host->bandwidth, BytesPerSecond{50e9});
  EXPECT_EQ(h200.device.rates_of(DType::bf16).memory, BytesPerSecond{4.8e12});
  EXPECT_NEAR(static_cast<double>(h200.device.memory.count), 139.8 * (1 << 30), 1);
}

/// Lines of a shipped file that give a number without a source above them.
std::string unsourced(std::string_view text) {
  static const std::regex number(R"(^\w+ = ("?[0-9\[]).*)");
  std::istringstream lines{std::string(text)};
  std::string found;
  bool sourced = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) {
      sourced = sourced || line.starts_with("# source: ");
      continue;
    }
    const bool shape =
        line.starts_with("devices_per_host") || line.starts_with("hosts") || line.starts_with("shared_by");
    if (std::regex_match(line, number) && !sourced && !shape) found += line + "\n";
    sourced = false;
  }
  return found;
}

TEST(ShippedClusters, every_number_has_a_source) {
  EXPECT_EQ(unsourced("# source: a book\n# of numbers\na = 1\nb = 2\n"), "b = 2\n");
  for (const ShippedCluster& shipped : shipped_clusters()) EXPECT_EQ(unsourced(shipped.text), "") << shipped.name;
}

TEST(ShippedClusters, they_are_the_files_of_the_repository) {
  for (const ShippedCluster& shipped : shipped_clusters()) {
    std::ifstream file(fmt::format(SWITCHYARD_SOURCE "/clusters/{}.toml", shipped.name));
    std::ostringstream text;
    text << file.rdbuf();
    EXPECT_EQ(text.str(), shipped.text) << shipped.name;
  }
}

TEST(LoadHardware, the_example_of_the_reference_is_accepted) {
  std::ifstream file(SWITCHYARD_SOURCE "/docs/cluster-format.md");
  std::ostringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const size_t begin = text.find("```toml\n") + 8;
  const Hardware hardware =
      hardware_from_toml(text.substr(begin, text.find("```", begin) - begin), "docs/cluster-format.md");
  EXPECT_THAT(hardware.host_names, ElementsAre("alpha", "beta"));
  EXPECT_EQ(hardware.inter_host->shared_by, 2);
}

TEST(LoadHardware, a_path_is_read_and_named_in_messages) {
  const Scratch folder;
  const std::string path = folder.file("hardware.toml", kGood);
  EXPECT_EQ(load_hardware(path, 4), hardware_from_toml(kGood, path, 4));
  folder.file("hardware.toml", "name = = 1\n");
  EXPECT_THAT(message_of([&] { load_hardware(path); }), StartsWith(path + ":1:8: this is not valid TOML: "));
}

TEST(LoadHardware, an_unknown_name_lists_the_known_ones) {
  const std::string rest =
      "\" is neither a file nor a known name. Check the path, or use one of a100-80g, a800-80g, demo, h100-80g, "
      "h200-141g.";
  EXPECT_EQ(message_of([] { load_hardware("a100"); }), "cluster \"a100" + rest);
  EXPECT_EQ(message_of([] { load_hardware("/nowhere/my.toml"); }), "cluster \"/nowhere/my.toml" + rest);
  EXPECT_EQ(message_of([] { load_hardware("/"); }), "cluster \"/" + rest) << "a folder";
  EXPECT_EQ(message_of([] { load_hardware("a100-80g", 12); }),
            "clusters/a100-80g.toml: 12 ranks are not a whole number of hosts with 8 devices each. Use 8 or 16 ranks.");
  EXPECT_EQ(message_of([] { load_hardware("demo", 8); }),
            "clusters/demo.toml:4: 8 ranks don't fit on 1 host with 4 devices. Use at most 4 ranks, or a cluster of 2 "
            "hosts with [links.inter_host].");
}

TEST(LoadHardware, devices_of_a_cluster_on_other_hosts) {
  Hardware expected = load_hardware("h100-80g", 16);
  EXPECT_EQ(load_hardware("h100-80g:2x8"), expected);
  expected.hosts = 3;
  expected.devices_per_host = 4;
  EXPECT_EQ(load_hardware("h100-80g:3x4"), expected);
  expected.hosts = 2;
  EXPECT_EQ(load_hardware("h100-80g:3x4", 8), expected);
  const Scratch folder;
  const std::string path = folder.file("hosts", "alpha slots=4\nbeta slots=4\n");
  expected.host_names = {"alpha", "beta"};
  EXPECT_EQ(load_hardware("h100-80g:" + path), expected);
  folder.file("hosts", "alpha slots=4\nbeta slots=2\n");
  EXPECT_EQ(message_of([&] { load_hardware("h100-80g:" + path); }),
            path + " has hosts with unlike numbers of slots; as many on each host are needed. Change the slots.");
  EXPECT_THAT(message_of([&] { load_hardware(path); }),
              StartsWith("cluster \"" + path + "\" says which hosts there are, but not what their devices and links"));
  EXPECT_THAT(message_of([&] { load_hardware("2x8"); }), testing::HasSubstr("such as h200-141g:2x8"));
  EXPECT_EQ(message_of([&] { load_hardware("h100-80g:2x16"); }),
            "cluster h100-80g has 8 devices on a host, but 2x16 has 16. Use at most 8 on each host.");
  EXPECT_EQ(message_of([&] { load_hardware("h100-80g:2x9"); }),
            "cluster h100-80g has 8 devices on a host, but 2x9 has 9. Use at most 8 on each host.");
  EXPECT_EQ(message_of([&] { load_hardware("demo:1x8"); }),
            "cluster demo has 4 devices on a host, but 1x8 has 8. Use at most 4 on each host.");
  EXPECT_EQ(message_of([&] { load_hardware("demo:2x4"); }),
            "cluster demo has no [links.inter_host], which the 2 hosts of 2x4 need. Add it.");
  EXPECT_EQ(message_of([&] { load_hardware("h100-80g:2x4", 12); }),
            "2x4: 12 ranks don't fit on 2 hosts with 4 devices each. Use at most 8 ranks, or a cluster of 3 hosts.");
}

TEST(LoadCluster, takes_a_topology_or_a_cluster) {
  EXPECT_EQ(load_cluster("2x4").host, load_hardware("h100-80g:2x4").placement().host);
  EXPECT_EQ(load_cluster("h100-80g", 16).host, load_cluster("2x8").host);
  EXPECT_EQ(load_cluster("demo", 2).overlaps_collectives, false);
}

}  // namespace
}  // namespace switchyard::config
