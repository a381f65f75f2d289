#include "config/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "config/hardware.hpp"

namespace switchyard::config {
namespace {

Profile measured() {
  Profile profile;
  profile.machine = {"Some CPU", "cpu", "threads", "0.1.0", 2, 2, 1, 1'700'000'000, 0.25};
  cluster::Hardware& h = profile.hardware;
  h.name = "2 x Some CPU";
  h.devices_per_host = 2;
  h.overlap_slowdown = 1.5;
  h.overlaps_collectives = false;
  h.device.name = "Some CPU";
  h.device.memory = {1 << 30};
  h.device.alone_speedup = 1.25;
  h.device.host_launch = Seconds{1.25e-5};
  h.device.codecs["int8"] = {{3e9}, {7e9}, {1e-7}};
  h.device.lockstep_curve = {{{1e-4, 0.75}, {0.5, 0.9375}}};
  h.device.rates[DType::f32] = {.matmul = {6e10}, .memory = {1e10}};
  h.device.operators[DType::f32]["linear"] = {{{64, 128, 1e4, 1e-3}}, {}};
  h.device.operators[DType::f32]["attention"] = {{}, {{128, 64, 1e-6, 1e-8, 0}}};
  h.intra_host = {{2e-5}, {1e10}, 1, {{{4096, 0.25}, {1 << 20, 1}}}, 0.7, 1.9, {5e9}};
  return profile;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_in(const std::string& text) {
  return message_of([&] { profile_from_json(text, "p.json"); });
}

TEST(Profile, reads_back_as_it_was_written) {
  const Profile profile = measured(), read = profile_from_json(to_json(profile), "p.json");
  EXPECT_EQ(read.hardware, profile.hardware);
  EXPECT_EQ(read.machine, profile.machine);
}

TEST(Profile, of_a_version_that_did_not_say_how_steady_its_machine_was_is_read) {
  const std::string text = to_json(measured());
  EXPECT_EQ(profile_from_json(replaced(text, R"("speed_change":0.25,)", ""), "p.json").machine.speed_change, 0);
  EXPECT_THAT(error_in(replaced(text, R"("speed_change":0.25)", R"("speed_change":-1)")),
              testing::HasSubstr("machine.speed_change"));
}

TEST(Profile, says_by_the_machine_whose_kernels_compute) {
  Profile profile = measured();
  profile.machine.device = "cuda";
  profile.hardware.device.type = cluster::DeviceType::cuda;
  EXPECT_EQ(profile_from_json(to_json(profile), "p.json").hardware, profile.hardware);
}

TEST(Profile, with_links_between_hosts_reads_back_too) {
  Profile profile = measured();
  profile.hardware.hosts = 2;
  profile.hardware.inter_host = cluster::LinkClass{{1e-4}, {1e7}, 2, {}, 1, 1.1};
  EXPECT_EQ(profile_from_json(to_json(profile), "p.json").hardware, profile.hardware);
}

TEST(Profile, serves_as_many_ranks_as_were_measured_or_fewer) {
  EXPECT_EQ(profile_from_json(to_json(measured()), "p.json", 1).hardware.devices_per_host, 1);
  EXPECT_THAT(message_of([&] { profile_from_json(to_json(measured()), "p.json", 4); }),
              testing::HasSubstr("4 ranks don't fit on 1 host with 2 devices"));
}

TEST(Profile, that_is_corrupted_is_reported_with_the_place_and_the_remedy) {
  const std::string text = to_json(measured());
  EXPECT_THAT(error_in(text.substr(0, text.size() / 2)), testing::HasSubstr("this is not valid JSON"));
  EXPECT_THAT(error_in(text.substr(0, text.size() / 2)),
              testing::HasSubstr("Measure again with `switchyard profile`."));
  EXPECT_THAT(error_in("{}"), testing::HasSubstr("p.json: the document has no key"));
  EXPECT_THAT(error_in("[]"), testing::HasSubstr("an object is needed"));
  EXPECT_THAT(error_in(replaced(text, "0.001]", "-0.001]")),
              testing::HasSubstr("operators.fp32.linear.calls[0] has -0.001"));
  EXPECT_THAT(error_in(replaced(text, ",0.001]", "]")), testing::HasSubstr("has 3 numbers; 4 are needed"));
  EXPECT_THAT(error_in(replaced(text, "\"fp32\":{\"attention\"", "\"fp8\":{\"attention\"")),
              testing::HasSubstr("\"fp8\" is unknown"));
  EXPECT_THAT(error_in(replaced(text, "\"latency\":2e-05", "\"latency\":-1")),
              testing::HasSubstr("links.intra_host.latency"));
  EXPECT_THAT(error_in(replaced(text, "\"processor\"", "\"procesor\"")),
              testing::HasSubstr("Did you mean \"processor\"?"));
}

TEST(Profile, of_another_machine_version_or_time_is_named) {
  const Machine here = measured().machine;
  Machine other = here;
  EXPECT_EQ(difference(other, here), "");
  other.processor = "Another CPU";
  EXPECT_EQ(difference(other, here),
            "was measured on Another CPU with 2 cores (cpu), not on this machine, Some CPU with 2 cores (cpu)");
  other = here;
  other.version = "0.0.9";
  EXPECT_EQ(difference(other, here), "was measured by version 0.0.9; this is 0.1.0");
  other = here;
  other.measured_at -= 31 * 24 * 60 * 60;
  EXPECT_EQ(difference(other, here), "was measured 31 days ago");
}

TEST(Profile, that_is_not_there_is_reported) {
  EXPECT_EQ(message_of([] { load_hardware("/nowhere/p.json"); }),
            "profile /nowhere/p.json can't be read. Check the path, or measure one with `switchyard profile --out "
            "/nowhere/p.json`.");
}

}  // namespace
}  // namespace switchyard::config
