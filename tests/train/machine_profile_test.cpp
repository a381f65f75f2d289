#include "train/machine_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../files/scratch.hpp"
#include "base/errors.hpp"
#include "config/emulated_cluster.hpp"
#include "small_run.hpp"
#include "train/profile.hpp"

namespace switchyard::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class MachineProfile : public testing::Test {
 protected:
  MachineProfile() {
    profile_.machine = this_machine({.ranks = 2, .threads = 1}, {});
    profile_.hardware.name = "as kept";
    profile_.hardware.devices_per_host = 2;
    profile_.hardware.device.name = "cpu";
    profile_.hardware.device.memory = {1 << 30};
    profile_.hardware.device.rates[DType::f64] = {.matmul = {1e10}, .memory = {1e10}};
    profile_.hardware.device.operators[DType::f64]["linear"] = {{{64, 128, 1e4, 1e-3}}, {}};
    profile_.hardware.intra_host = {{1e-5}, {1e9}};
  }
  std::string keep(const std::string& name) const {
    files::put(scratch_ / name, config::to_json(profile_));
    return (scratch_ / name).string();
  }
  config::Profile found(const config::Job& job, const comm::Launch& launch = {},
                        const std::optional<cluster::Hardware>& emulated = {}, const std::string& folder = "") {
    const auto measure = [this](const ProfileSettings& settings, const comm::Launch&) {
      config::Profile measured = profile_;
      measured.machine = this_machine(settings, {});
      measured.hardware.name = "as measured";
      if (settings.emulated) measured.hardware = config::with_cores(*settings.emulated, profile_.hardware.device);
      return measured;
    };
    return machine_profile(
        job, launch, (scratch_ / folder).string(), [this](const std::string& text) { said_.push_back(text); }, measure,
        emulated, [this] { ++begun_; });
  }
  config::Job job(const std::vector<std::string>& sets = {}) const { return small_job("data", "out", sets); }

  Scratch scratch_;
  config::Profile profile_;
  std::vector<std::string> said_;
  int begun_ = 0;  // how often something was to be measured
};

TEST_F(MachineProfile, that_the_job_names_is_used_as_it_is) {
  const config::Job named = job({"run.profile=\"" + keep("p.json") + "\""});
  EXPECT_EQ(found(named).hardware.name, "as kept");
  EXPECT_THAT(said_, ElementsAre());
}

TEST_F(MachineProfile, of_another_machine_is_used_if_the_job_names_it_and_the_difference_reported) {
  profile_.machine.processor = "Another CPU";
  const config::Job named = job({"run.profile=\"" + keep("p.json") + "\""});
  EXPECT_EQ(found(named).hardware.name, "as kept");
  EXPECT_THAT(said_, ElementsAre(HasSubstr("was measured on Another CPU")));
}

TEST_F(MachineProfile, without_the_job_s_precision_is_refused) {
  const config::Job named = job({"run.profile=\"" + keep("p.json") + "\"", "run.precision=\"fp32\""});
  EXPECT_THAT(message_of<UserError>([&] { found(named); }),
              HasSubstr("has no fp32. Measure it: switchyard profile --precision fp32."));
}

TEST_F(MachineProfile, that_is_kept_for_as_many_ranks_and_threads_is_used) {
  keep("profile-2x1-cpu-fp64-heads8.json");
  EXPECT_EQ(found(job()).hardware.name, "as kept");
  EXPECT_THAT(said_, ElementsAre());
  EXPECT_EQ(begun_, 0);
}

TEST_F(MachineProfile, is_measured_once_and_kept) {
  EXPECT_EQ(found(job()).hardware.name, "as measured");
  EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("measuring this machine for the plan; kept in "),
                                       HasSubstr("profile-2x1-cpu-fp64-heads8.json"))));
  said_.clear();
  EXPECT_EQ(found(job()).hardware.name, "as measured") << "from the file";
  EXPECT_THAT(said_, ElementsAre());
  EXPECT_EQ(begun_, 1);
}

TEST_F(MachineProfile, that_cannot_be_kept_is_used_nevertheless) {
  files::put(scratch_ / "file", "");
  std::filesystem::create_symlink("loop", scratch_ / "loop");
  for (const char* folder : {"file/below", "loop/below"}) {
    said_.clear();
    EXPECT_EQ(found(job(), {}, {}, folder).hardware.name, "as measured");
    EXPECT_THAT(said_, ElementsAre(HasSubstr("measuring this machine"), HasSubstr("the profile is not kept: cannot ")));
  }
}

TEST_F(MachineProfile, that_is_kept_but_of_another_machine_or_other_threads_or_broken_is_measured_again) {
  const std::string kept = "profile-2x1-cpu-fp64-heads8.json";
  const config::Profile good = profile_;
  const auto expect_anew = [&](const std::string& why) {
    said_.clear();
    EXPECT_EQ(found(job()).hardware.name, "as measured");
    ASSERT_EQ(said_.size(), 2u);
    EXPECT_THAT(said_[0], AllOf(HasSubstr(kept), HasSubstr(why), HasSubstr("measuring again")));
  };
  profile_.machine.processor = "Another CPU";
  keep(kept);
  expect_anew("was measured on Another CPU");
  profile_ = good;
  profile_.machine.threads = 3;
  keep(kept);
  expect_anew("was measured with another number of threads");
  profile_ = good;
  profile_.hardware.device.rates = {{DType::f32, {.matmul = {1e10}, .memory = {1e10}}}};
  profile_.hardware.device.operators.clear();
  keep(kept);
  profile_ = good;
  expect_anew("has no fp64");
  files::put(scratch_ / kept, "{");
  expect_anew("this is not valid JSON");
  EXPECT_EQ(config::read_profile((scratch_ / kept).string(), 2).hardware.name, "as measured")
      << "the broken one is replaced";
}

TEST_F(MachineProfile, is_required_of_processes_that_must_share_one) {
  comm::Launch launch;
  launch.distributed = true;
  launch.size = 2;
  EXPECT_THAT(message_of<UserError>([&] { found(job(), launch); }),
              HasSubstr("Launch `switchyard profile --out profile.json` as the job is launched"));
}

TEST_F(MachineProfile, of_cores_that_emulate_serves_any_cluster) {
  const cluster::Hardware two = config::emulated_hardware("2x1:1Mbit/s,1GB/s,1GiB");
  const config::Profile measured = found(job(), {}, two);
  EXPECT_EQ(measured.hardware.hosts, 2);
  EXPECT_EQ(measured.hardware.device.operators, profile_.hardware.device.operators);
  EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("kept in "), HasSubstr("profile-emulated-"))));
  said_.clear();
  const cluster::Hardware four = config::emulated_hardware("1x4:2GB/s,2GiB");
  const config::Profile kept = found(job(), {}, four);
  EXPECT_THAT(said_, ElementsAre()) << "the cores are the same";
  EXPECT_EQ(kept.hardware.ranks(), 4);
  EXPECT_EQ(kept.hardware.intra_host, four.intra_host);
  EXPECT_EQ(kept.hardware.device.memory.count, i64{2} << 30);
  const config::Job named = job({"run.profile=\"" + keep("p.json") + "\""});
  EXPECT_THAT(message_of<UserError>([&] { found(named, {}, four); }),
              HasSubstr("with which nothing can be emulated. Measure one by processor time"));
}

TEST(ProfileFolder, follows_the_user_s_cache) {
  const auto with = [](std::map<std::string, std::string> set) {
    return profile_folder(
        [set](const std::string& name) { return set.contains(name) ? std::optional(set.at(name)) : std::nullopt; });
  };
  EXPECT_EQ(with({{"XDG_CACHE_HOME", "/c"}, {"HOME", "/h"}}), "/c/switchyard");
  EXPECT_EQ(with({{"HOME", "/h"}}), "/h/.cache/switchyard");
  EXPECT_EQ(with({}), "");
}

}  // namespace
}  // namespace switchyard::train
