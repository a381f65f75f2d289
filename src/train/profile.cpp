#include "train/profile.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/version.hpp"
#include "config/emulated_cluster.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/memory.hpp"
#include "kernels/threads.hpp"
#include "train/channels.hpp"
#include "train/host_share.hpp"
#include "train/lockstep.hpp"
#include "train/profile_codecs.hpp"
#include "train/profile_compute.hpp"
#include "train/profile_links.hpp"
#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

constexpr Seconds kPatience{300};  // for a rank that shares its core with others

int cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

int ranks_of(const ProfileSettings& settings, const comm::Launch& launch) {
  if (settings.emulated) return cores();
  if (settings.ranks > 0) return settings.ranks;
  if (launch.distributed) return launch.size;
  return settings.device == cluster::DeviceType::cuda ? std::max(1, gpu_count()) : cores();
}

int threads_of(const ProfileSettings& settings, int ranks_per_host) {
  return settings.threads > 0 ? settings.threads : std::max(1, cores() / ranks_per_host);
}

// Progress in one line on a terminal; elsewhere a line for every tenth of the work.
class ProfileProgress {
 public:
  explicit ProfileProgress(bool shown) : shown_(shown), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~ProfileProgress() {
    if (shown_ && terminal_) std::cerr << "\n";
  }
  void show(const std::string& what, double share) {
    const int tenth = static_cast<int>(10 * share);
    if (!shown_ || (!terminal_ && what == what_ && tenth == tenth_)) return;
    what_ = what;
    tenth_ = tenth;
    const double seconds = seconds_since(start_);
    std::cerr << (terminal_ ? "\r" : "") << fmt::format("profile: {} {:.0f}%, {:.0f} s  ", what, 100 * share, seconds)
              << (terminal_ ? "" : "\n") << std::flush;
  }

 private:
  const bool shown_, terminal_;
  const Clock::time_point start_ = Clock::now();
  std::string what_;
  int tenth_ = -1;
};

// Ranks of a host that share a device.
int sharing_a_device(int ranks, bool processes) {
  return processes || gpu_count() == 0 ? 1 : (ranks + gpu_count() - 1) / gpu_count();
}

// The device of a rank of this host. Ranks share the memory of cores; threads of one process may share devices.
cluster::Device described(const at::Device& device, int ranks, bool processes, const config::Machine& machine) {
  cluster::Device made;
  if (device.is_cpu()) {
    made.name = machine.processor;
    made.memory = {kernels::machine_memory() / ranks};
    return made;
  }
  const kernels::DeviceMemory memory = kernels::device_memory(device);
  made.name = kernels::device_name(device);
  made.type = cluster::DeviceType::cuda;
  made.memory = {memory.all / sharing_a_device(ranks, processes)};
  return made;
}

// Thread blocks that a channel has in jobs with 7 to 13 channels: more would measure links that no job has.
constexpr int kBlocksOfAChannel = 8;

// NCCL's memory where each rank is a process: in each of a job's channels some 10 MiB for each peer and block, of
// which plans use some dozens.
constexpr i64 kRoomForNccl = i64{2} << 30;

// Memory of a device that plans leave free, once it has computed everything: its driver's context with the kernels
// that were loaded, and what others have.
Bytes reserve_of(const at::Device& device, int sharing, bool exchanges) {
  if (device.is_cpu()) return {};
  const kernels::DeviceMemory memory = kernels::device_memory(device);
  const i64 for_nccl = exchanges ? std::min(kRoomForNccl, memory.all / 16) : 0;
  return {(memory.all - memory.free - memory.tensors + for_nccl) / sharing};
}

// The best rate of a copy, for operators that were not measured.
BytesPerSecond memory_rate(const cluster::OperatorTable& copy) {
  BytesPerSecond best{};
  for (const cluster::MeasuredCall& call : copy.calls)
    best.count = std::max(best.count, call.rows * call.work / call.seconds);
  return best;
}

}  // namespace

std::vector<Precision> with_states(const std::vector<Precision>& precisions) {
  std::vector<Precision> all;
  for (const Precision& precision : precisions)
    for (const Precision& each : {precision, Precision{precision.state, precision.state}})
      if (std::ranges::find(all, each) == all.end()) all.push_back(each);
  return all;
}

config::Machine this_machine(const ProfileSettings& settings, const comm::Launch& launch) {
  const int ranks = ranks_of(settings, launch);
  return {.processor = processor(),
          .device = settings.device == cluster::DeviceType::cuda ? "cuda" : "cpu",
          .fabric = settings.emulated    ? config::kEmulatedFabric
                    : launch.distributed ? (launch.via == comm::Via::mpi ? "mpi" : "tcp")
                                         : "threads",
          .version = kVersion,
          .cores = cores(),
          .ranks = ranks,
          .threads = threads_of(settings, ranks),
          .measured_at = static_cast<i64>(std::time(nullptr))};
}

config::Profile profile(const ProfileSettings& settings, const comm::Launch& launch) {
  if (settings.emulated && launch.distributed)
    user_error("devices are emulated by the cores of one machine, not by {} launched processes. Start one process.",
               launch.size);
  const int ranks = ranks_of(settings, launch);
  check_threads(launch.distributed ? 1 : ranks, settings.threads);
  config::Profile result;
  std::mutex mutex;
  require_device(settings.device);
  kernels::install_rank_allocator();
  config::FabricSettings patient;
  patient.timeout = kPatience;
  on_ranks(ranks, launch, cluster::uniform(1, ranks), fabric_options(patient), [&](comm::Fabric& fabric) {
    const cluster::Cluster& placed = fabric.cluster();
    const int hosts = placed.hosts(), devices = fabric.size() / hosts;
    if (hosts * devices != fabric.size())
      user_error("{} ranks on {} hosts: a profile needs equal numbers of ranks on all hosts. Launch it that way.",
                 fabric.size(), hosts);
    kernels::RankMemory memory(kernels::machine_memory());
    const kernels::MemoryScope scope(&memory);
    RankSettings rank;
    rank.threads = settings.emulated ? 1 : settings.threads;
    rank.memory = &memory;
    rank = with_host_share(rank, fabric, settings.device, !launch.distributed);
    kernels::set_up_compute_thread(rank.threads);
    MeasurementBarrier barrier(fabric);
    ProfileProgress progress(fabric.rank() == 0);
    config::Profile mine{.hardware = {}, .machine = this_machine(settings, launch)};
    mine.machine.threads = rank.threads;
    cluster::Hardware& hardware = mine.hardware;
    hardware.device = described(rank.device, devices, launch.distributed, mine.machine);
    hardware.name = fmt::format("{} x {} as measured", fabric.size(), hardware.device.name);
    hardware.hosts = hosts;
    hardware.devices_per_host = devices;
    hardware.overlaps_collectives = placed.overlaps_collectives;
    if (!settings.emulated) {
      progress.show("links", 0);
      on_devices(
          fabric, rank.device, [] { return DeviceChannels{.ids = {kLinkChannel}, .blocks = kBlocksOfAChannel}; },
          patient, [&](comm::Fabric& links) { profile_links(barrier, links, rank, hardware); });
    }
    if (!settings.emulated) {
      progress.show("waiting for each other", 0);
      hardware.device.lockstep_curve = profile_lockstep(barrier, settings.precisions.front(), rank, settings.quick);
    }
    for (const Precision& precision : with_states(settings.precisions)) {
      const std::string what = fmt::format("operators in {}", name_of(precision));
      OperatorProfile operators =
          profile_operators(barrier, precision, rank, settings.emulated ? thread_seconds : wall_seconds,
                            settings.head_dim, settings.quick, [&](double share) { progress.show(what, share); });
      hardware.device.rates[precision.compute] = {.matmul = operators.matmul,
                                                  .memory = memory_rate(operators.tables.at("copy"))};
      hardware.device.operators[precision.compute] = std::move(operators.tables);
      hardware.device.alone_speedup = operators.alone_speedup;
      hardware.device.host_launch = operators.host_launch;
      mine.machine.speed_change = std::max(mine.machine.speed_change, operators.speed_change);
    }
    progress.show("codecs", 0);
    hardware.device.codecs = profile_codecs(barrier, settings.emulated ? thread_seconds : wall_seconds);
    hardware.device.reserve = reserve_of(rank.device, sharing_a_device(devices, launch.distributed), fabric.size() > 1);
    if (settings.emulated) hardware = config::with_cores(*settings.emulated, hardware.device);
    const std::lock_guard lock(mutex);
    if (fabric.rank() == 0) result = std::move(mine);
  });
  return result;
}

}  // namespace switchyard::train
