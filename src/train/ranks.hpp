// Ranks of a run: threads of this process, or this process as one of many.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/fabric.hpp"
#include "comm/launch.hpp"
#include "config/job.hpp"

namespace switchyard::compiler {
class Plans;
}

namespace switchyard::train {

/// Threads that a process starts for its ranks to compute with.
inline constexpr i64 kMostThreads = 1024;
/// UserError unless `ranks` ranks in this process with `threads` threads each (0: not given) are at most kMostThreads
/// threads: more could exhaust the machine's memory for stacks and its limit of processes.
void check_threads(i64 ranks, i64 threads);

/// After so long a silence a rank counts as lost.
std::chrono::milliseconds timeout_of(const config::FabricSettings& settings);

/// The fabric options of a job; refused connections are reported on standard error. UserError if fabric.token_file
/// can't be read.
comm::FabricOptions fabric_options(const config::FabricSettings& settings);

/// A process's end of the fabric of its launch, for what it does with the others before on_ranks, which takes it; null
/// where ranks are threads.
using JoinedFabric = std::shared_ptr<comm::Fabric>;
/// Joins the other processes. UserError if the launch has another size than `ranks`; 0: any.
JoinedFabric join_ranks(int ranks, const comm::Launch& launch, const comm::FabricOptions& options);

/// Calls `work` once per local rank, each with its fabric: `ranks` threads of this process, or this process alone when
/// it was launched as one of many (then `ranks` must be 0 or the launch's size; UserError otherwise). Rethrows the
/// error that ended the job on all ranks; a failing rank aborts the fabric, so that no other waits for it.
/// joined: the fabric of a launch, if it was joined before.
void on_ranks(int ranks, const comm::Launch& launch, const cluster::Cluster& local_cluster,
              const comm::FabricOptions& options, const std::function<void(comm::Fabric&)>& work,
              JoinedFabric joined = {});

/// The channels on which a job moves memory of devices, and the groups with collectives there (comm::NcclOptions).
/// blocks: as there; 0: all that may be.
struct DeviceChannels {
  std::vector<int> ids;
  std::vector<comm::Channel> groups{};
  int blocks = 0;
};

/// Those of a job's steps.
DeviceChannels channels_of(const compiler::Plans& plans, const config::FabricSettings& settings);

/// Calls `work` with the fabric by which this rank and the others, who call it too, exchange what lies on their
/// devices: NCCL's for `channels`, which are asked for then, on top of `host`, where `device` is none of a CPU, `host`
/// moves no memory of devices and settings.nccl does not forbid it; else `host` itself, to which a device's work counts
/// as its rank's. If `work` throws, the fabric is aborted with the reason, which others hear.
void on_devices(comm::Fabric& host, const at::Device& device, const std::function<DeviceChannels()>& channels,
                const config::FabricSettings& settings, const std::function<void(comm::Fabric&)>& work);

}  // namespace switchyard::train
