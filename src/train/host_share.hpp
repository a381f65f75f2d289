// A rank's share of its host: threads and a device.
#pragma once

#include <array>
#include <bitset>
#include <vector>

#include "comm/fabric.hpp"
#include "config/job.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// The host as a rank sees it. visible_gpus: processes with different values have different devices.
struct HostView {
  std::bitset<1024> cores;  // on which its process may run
  int gpus = 0;             // devices of gpu_type() of its process
  std::array<char, 256> visible_gpus{};
  cluster::DeviceType device = cluster::DeviceType::cpu;  // with which the rank computes
};

/// errors  UserError with the first ranks that differ: ranks of one job compute on devices of one type
void require_one_type(const std::vector<HostView>& all);

/// Which devices a process has, as a value of HostView::visible_gpus. identities: of its devices, in their order, each
/// empty where it is not known; variable: CUDA_VISIBLE_DEVICES, which distinguishes no devices where the launcher shows
/// each process one of its own by a container of the system: each then has the first one of what it sees.
std::string visible_gpus(const std::vector<std::string>& identities, const std::string& variable);

/// Number of threads for a rank: the cores that it may run on, each divided among the ranks of its host that may run
/// there, too; at least 1. all, host: of every rank.
int threads_for(int rank, const std::vector<HostView>& all, const std::vector<int>& host);

/// The CUDA device of a rank, by its index among the ranks of its host that see the same devices. If the ranks are
/// threads of one process, they share devices in turn where there are fewer devices than ranks.
/// errors  UserError with the rank: more processes of its host than devices that they see
int gpu_for(int rank, const std::vector<HostView>& all, const std::vector<int>& host, bool threads_of_one_process);

/// The type of device that run.device = "cuda" asks for. Tests put another one in CUDA's place, before ranks start.
at::DeviceType& gpu_type();

/// Devices of that type that this process sees.
int gpu_count();

/// The device that run.device = "auto" means in this process.
cluster::DeviceType device_type();

/// UserError unless this process can compute on such a device. Called before ranks start, and before anything else asks
/// CUDA for a device: it is given as many queues as there can be, unless CUDA_DEVICE_MAX_CONNECTIONS says how many.
void require_device(cluster::DeviceType device);

/// `settings` with the rank's device, and its threads unless they are given (above 0). All ranks call it together, each
/// on the thread that works with its device from now on.
/// errors  UserError on all of them where require_one_type has one, or gpu_for for any
RankSettings with_host_share(RankSettings settings, comm::Fabric& fabric, cluster::DeviceType device,
                             bool threads_of_one_process);

}  // namespace switchyard::train
