#include "train/machine_profile.hpp"

#include <filesystem>

#include "base/errors.hpp"
#include "compiler/job_plans.hpp"
#include "config/emulated_cluster.hpp"
#include "files/disk.hpp"

namespace switchyard::train {
namespace {

ProfileSettings settings_of(const config::Job& job, const Precision& precision,
                            const std::optional<cluster::Hardware>& emulated) {
  ProfileSettings settings{.device = job.run.device, .precisions = {precision}, .emulated = emulated};
  if (!emulated) {
    settings.ranks = job.run.ranks;
    settings.threads = job.run.threads;
  }
  if (const i64 head_dim = job.model.config.head_dim; head_dim > 0 && head_dim % 2 == 0) settings.head_dim = head_dim;
  return settings;
}

// "-heads24" where these aren't the usual ones.
std::string heads_of(const ProfileSettings& settings) {
  return settings.head_dim == ProfileSettings().head_dim ? "" : fmt::format("-heads{}", settings.head_dim);
}

// A profile for emulation gives rates of a device, whatever cluster it was made for.
config::Profile read_profile(const std::string& path, const ProfileSettings& settings) {
  if (!settings.emulated) return config::read_profile(path, settings.ranks);
  config::Profile profile = config::read_profile(path);
  config::require_emulable(profile, path);
  profile.hardware = config::with_cores(*settings.emulated, profile.hardware.device);
  return profile;
}

config::Profile named_profile(const config::RunSettings& run, const ProfileSettings& settings,
                              const Precision& precision, const config::Machine& here,
                              const std::function<void(const std::string&)>& say) {
  config::Profile profile = read_profile(run.profile, settings);
  if (!profile.hardware.device.rates.contains(precision.compute))
    user_error("run.profile {} has no {}. Measure it: switchyard profile --precision {}.", run.profile,
               name_of(precision), name_of(precision));
  if (const std::string differs = config::difference(profile.machine, here); !differs.empty())
    say(fmt::format("{} {}", run.profile, differs));
  return profile;
}

// Empty, after reporting the reason, if it can't be used.
std::optional<config::Profile> kept_profile(const std::string& path, const ProfileSettings& settings,
                                            const Precision& precision, const config::Machine& here,
                                            const std::function<void(const std::string&)>& say) {
  std::error_code none;
  if (path.empty() || !std::filesystem::exists(path, none)) return std::nullopt;
  try {
    config::Profile profile = read_profile(path, settings);
    std::string differs = config::difference(profile.machine, here);
    if (differs.empty() && profile.machine.threads != here.threads)
      differs = "was measured with another number of threads";
    if (differs.empty() && !profile.hardware.device.rates.contains(precision.compute))
      differs = fmt::format("has no {}", name_of(precision));
    if (differs.empty()) return profile;
    say(fmt::format("{} {}; measuring again", path, differs));
  } catch (const UserError& error) {
    say(fmt::format("{}; measuring again", error.what()));
  }
  return std::nullopt;
}

}  // namespace

std::string profile_folder(const std::function<std::optional<std::string>(const std::string&)>& variable) {
  if (const auto cache = variable("XDG_CACHE_HOME"); cache && !cache->empty()) return *cache + "/switchyard";
  if (const auto home = variable("HOME"); home && !home->empty()) return *home + "/.cache/switchyard";
  return "";
}

config::Profile machine_profile(const config::Job& job, const comm::Launch& launch, const std::string& folder,
                                const std::function<void(const std::string&)>& say, const Measure& measure,
                                const std::optional<cluster::Hardware>& emulated, const std::function<void()>& before) {
  const Precision precision = compiler::precision_of(job.run);
  const ProfileSettings settings = settings_of(job, precision, emulated);
  const config::Machine here = this_machine(settings, launch);
  if (!job.run.profile.empty()) return named_profile(job.run, settings, precision, here, say);
  if (launch.distributed)
    user_error(
        "a job without strategies, or with run.choose_buckets, is planned with a profile that all processes read. "
        "Launch `switchyard profile --out "
        "profile.json` as the "
        "job is launched, and set run.profile = \"profile.json\".");
  const std::string path =
      folder.empty() ? ""
                     : fmt::format("{}/profile-{}{}x{}-{}-{}{}.json", folder, emulated ? "emulated-" : "", here.ranks,
                                   here.threads, here.device, name_of(precision), heads_of(settings));
  if (auto kept = kept_profile(path, settings, precision, here, say)) return std::move(*kept);
  before();
  say(fmt::format("measuring this machine for the plan; {}",
                  path.empty() ? "the profile is not kept, as HOME is not set" : "kept in " + path));
  config::Profile profile = measure(settings, launch);
  if (!path.empty()) {
    try {
      files::make_folder(folder);
      files::write_text(path, config::to_json(profile));
    } catch (const std::exception& error) {
      say(fmt::format("the profile is not kept: {}", error.what()));
    }
  }
  return profile;
}

}  // namespace switchyard::train
