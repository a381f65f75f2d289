// The profile that a job on this machine is planned with.
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

/// Profiles kept for the next job: $XDG_CACHE_HOME/switchyard, else $HOME/.cache/switchyard; "" without both.
std::string profile_folder(const std::function<std::optional<std::string>(const std::string&)>& variable);

/// run.profile if the job names one; what differs between its machine and this one is said, and it is used as it is.
/// Else the one kept in `folder` for as many ranks and threads, measured first if there is none, or if it is stale,
/// foreign or broken, which is said. measure: train::profile, but for tests
/// errors  UserError: run.profile has other ranks or lacks the precision; processes under mpirun and the like, which
///         must share a file, have
///         none
config::Profile machine_profile(const config::Job& job, const comm::Launch& launch, const std::string& folder,
                                const std::function<void(const std::string&)>& say, const Measure& measure = profile);

}  // namespace switchyard::train
