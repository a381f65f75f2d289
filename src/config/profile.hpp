// Profiles: clusters as `switchyard profile` measured them, as JSON (docs/cluster-format.md).
#pragma once

#include <optional>
#include <string>

#include "cluster/hardware.hpp"

namespace switchyard::config {

/// Where and when a profile was measured. measured_at: seconds since 1970. speed_change: by how much the machine's
/// speed rose from its slowest to its fastest moments meanwhile (0.1: by a tenth); others may use it.
struct Machine {
  std::string processor{}, device{}, fabric{}, version{};  // "AMD EPYC", "cpu", "threads", "0.1.0"
  int cores = 0, ranks = 0, threads = 0;                   // threads: of a rank
  i64 measured_at = 0;
  double speed_change = 0;
  bool operator==(const Machine&) const = default;
};

struct Profile {
  cluster::Hardware hardware;
  Machine machine;
};

/// Why a profile of `measured` does not hold for `here`, such as "was measured on ..., not on this machine ..."; "" if
/// it does. A profile is stale after 30 days, and where the program's version is another one.
std::string difference(const Machine& measured, const Machine& here);

std::string to_json(const Profile& profile);
/// errors  UserError: no JSON, keys that are missing or have another type, times that are not above 0; says how to
///         measure again
Profile profile_from_json(const std::string& text, const std::string& origin, std::optional<int> ranks = std::nullopt);
/// The same from a file.
Profile read_profile(const std::string& path, std::optional<int> ranks = std::nullopt);

}  // namespace switchyard::config
