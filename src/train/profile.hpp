// `switchyard profile`: this machine, or under mpirun this cluster, as a cluster file of measured times.
#pragma once

#include <vector>

#include "comm/launch.hpp"
#include "config/job.hpp"
#include "config/profile.hpp"

namespace switchyard::train {

/// ranks: threads of this process (0: as many as were launched, else one for each core); threads: of a rank (0: the
/// cores shared out).
struct ProfileSettings {
  int ranks = 0, threads = 0;
  config::Device device = config::Device::cpu;
  std::vector<Precision> precisions{Precision{}};
  bool quick = false;  // a coarse profile, in seconds
};

/// Operators, links and their slow-down, ranks side by side; progress goes to standard error. Under mpirun and the like
/// every process calls it; rank 0 has the result, the others an empty one.
/// errors  UserError: other ranks than were launched
config::Profile profile(const ProfileSettings& settings, const comm::Launch& launch);

/// What a profile measured here and now with these settings would say of its machine.
config::Machine this_machine(const ProfileSettings& settings, const comm::Launch& launch);

}  // namespace switchyard::train
