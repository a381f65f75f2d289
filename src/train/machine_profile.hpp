// The profile with which a job on this machine is planned.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/launch.hpp"
#include "config/job.hpp"
#include "config/profile.hpp"
#include "train/profile.hpp"

namespace switchyard::train {

using Measure = std::function<config::Profile(const ProfileSettings&, const comm::Launch&)>;

/// The folder of profiles kept for later jobs: $XDG_CACHE_HOME/switchyard, else $HOME/.cache/switchyard; "" without
/// both.
std::string profile_folder(const std::function<std::optional<std::string>(const std::string&)>& variable);

/// The profile of this machine, or, with `emulated`, of the cluster that run.emulate names, whose devices are this
/// machine's cores: run.profile if the job names one; differences between its machine and this one are reported, and it
/// is used unchanged. Otherwise the profile kept in `folder` for as many ranks and threads; it is measured first if
/// there is none or if it is stale, of another machine or broken, which is reported. measure: train::profile, replaced
/// in tests. before: is called before anything is measured, and may throw.
/// errors UserError: run.profile is for another number of ranks, lacks the precision or can't be emulated; or the
/// processes of a distributed launch, which must share a file, have none
config::Profile machine_profile(
    const config::Job& job, const comm::Launch& launch, const std::string& folder,
    const std::function<void(const std::string&)>& say, const Measure& measure = profile,
    const std::optional<cluster::Hardware>& emulated = std::nullopt, const std::function<void()>& before = [] {});

}  // namespace switchyard::train
