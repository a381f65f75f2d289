// What a rank may use of its host: threads and a device.
#pragma once

#include <array>
#include <bitset>
#include <vector>

#include "comm/fabric.hpp"
#include "config/job.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// What a rank sees of its host.
struct HostView {
  std::bitset<1024> cores;  // that its process may run on
  int gpus = 0;             // CUDA devices of its process
  std::array<char, 256>
      visible_gpus{};  // CUDA_VISIBLE_DEVICES: processes in which it differs have devices of their own
};

/// Threads for a rank: the cores that it may run on, each shared by the ranks of its host that may run there too; 1 at
/// least. all, host  of every rank
int threads_for(int rank, const std::vector<HostView>& all, const std::vector<int>& host);

/// The CUDA device of a rank, by its place among the ranks of its host that see the same devices. Ranks that are
/// threads of one process take turns where there are fewer devices than ranks.
/// errors  UserError naming the rank: processes of its host are more than the devices that they see
int gpu_for(int rank, const std::vector<HostView>& all, const std::vector<int>& host, bool threads_of_one_process);

/// UserError unless this process can compute on such a device. Called before ranks start.
void require_device(config::Device device);

/// `settings` with threads (unless they are given: above 0) and device. All ranks call it together.
/// errors  UserError on all of them where gpu_for has one for any
RankSettings with_host_share(RankSettings settings, comm::Fabric& fabric, config::Device device,
                             bool threads_of_one_process);

}  // namespace switchyard::train
