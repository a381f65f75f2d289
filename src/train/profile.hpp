// `switchyard profile`: measures this machine, or with a distributed launch this cluster, and writes a cluster file.
#pragma once

#include <optional>
#include <vector>

#include "comm/launch.hpp"
#include "config/job.hpp"
#include "config/profile.hpp"

namespace switchyard::train {

/// ranks: threads of this process (0: as many as were launched, else one per core or CUDA device); threads: per rank
/// (0: the cores divided among the ranks). emulated: the profile is of this cluster, with cores of this machine as its
/// devices, all of which compute at once; times are processor times, and links are the cluster's own. ranks and threads
/// are then 0.
struct ProfileSettings {
  int ranks = 0, threads = 0;
  cluster::DeviceType device = cluster::DeviceType::cpu;
  std::vector<Precision> precisions{Precision{}};
  bool quick = false;  // a coarse profile that takes seconds
  i64 head_dim = 64;   // features of the heads that attention is to be timed with, even
  std::optional<cluster::Hardware> emulated{};
};

/// Times of operators, links and the slowdown of overlap, measured on all ranks at once; progress goes to standard
/// error. With a distributed launch every process calls it; rank 0 gets the result, the others an empty one.
/// errors  UserError: `ranks` differs from the number launched, hosts have unequal numbers of ranks, or a distributed
/// launch emulates
config::Profile profile(const ProfileSettings& settings, const comm::Launch& launch);

/// Those, and the precisions of their states, in which an update computes; each once.
std::vector<Precision> with_states(const std::vector<Precision>& precisions);

/// The description of this machine that a profile with these settings would have.
config::Machine this_machine(const ProfileSettings& settings, const comm::Launch& launch);

}  // namespace switchyard::train
