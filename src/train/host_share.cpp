#include "train/host_share.hpp"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/environment.hpp"
#include "base/errors.hpp"
#include "base/fingerprint.hpp"
#include "comm/collectives.hpp"
#include "kernels/device_memory.hpp"
#include "runtime/device_order.hpp"
#include "train/channels.hpp"

namespace switchyard::train {
namespace {

HostView own_view() {
  HostView view;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) {
    for (size_t core = 0; core < std::min<size_t>(CPU_SETSIZE, view.cores.size()); ++core)
      view.cores[core] = CPU_ISSET(core, &cores);
  } else {  // the host has more cores than the set can hold
    for (size_t core = 0; core < std::min<size_t>(std::thread::hardware_concurrency(), view.cores.size()); ++core)
      view.cores.set(core);
  }
  view.gpus = gpu_count();
  std::vector<std::string> identities;
  for (int gpu = 0; gpu < view.gpus; ++gpu)
    identities.push_back(kernels::device_identity({gpu_type(), static_cast<at::DeviceIndex>(gpu)}));
  visible_gpus(identities, environment("CUDA_VISIBLE_DEVICES").value_or(""))
      .copy(view.visible_gpus.data(), view.visible_gpus.size() - 1);
  return view;
}

}  // namespace

std::string visible_gpus(const std::vector<std::string>& identities, const std::string& variable) {
  if (identities.empty() || std::ranges::find(identities, "") != identities.end()) return variable;
  Fingerprint all;  // a host may have more than a message has room for
  for (const std::string& identity : identities) all.add(identity);
  return fmt::format("{:016x}", all.value());
}

void require_one_type(const std::vector<HostView>& all) {
  const auto other = std::ranges::find_if(all, [&](const HostView& v) { return v.device != all.front().device; });
  if (other == all.end()) return;
  const auto rank = static_cast<int>(other - all.begin());
  const bool first_has_one = all.front().device == cluster::DeviceType::cuda;
  user_error(
      "run.device: rank {} has a CUDA device, rank {} has none that its process can use. Set run.device = \"cpu\", or "
      "start all ranks where there is one.",
      first_has_one ? 0 : rank, first_has_one ? rank : 0);
}

int threads_for(int rank, const std::vector<HostView>& all, const std::vector<int>& host) {
  const auto mine = static_cast<size_t>(rank);
  double share = 0;
  for (size_t core = 0; core < all[mine].cores.size(); ++core) {
    if (!all[mine].cores[core]) continue;
    int users = 0;
    for (size_t other = 0; other < all.size(); ++other) users += host[other] == host[mine] && all[other].cores[core];
    share += 1.0 / users;
  }
  return std::max(1, static_cast<int>(share + 1e-6));  // three thirds of a core may add up to slightly less than 1
}

int gpu_for(int rank, const std::vector<HostView>& all, const std::vector<int>& host, bool threads_of_one_process) {
  const auto mine = static_cast<size_t>(rank);
  int before = 0, together = 0;
  for (size_t other = 0; other < all.size(); ++other) {
    if (host[other] != host[mine] || all[other].visible_gpus != all[mine].visible_gpus) continue;
    before += other < mine;
    ++together;
  }
  const int gpus = all[mine].gpus;
  if (threads_of_one_process && gpus > 0) return before % gpus;
  if (together > gpus)
    user_error(
        "run.device = \"cuda\": rank {} shares {} CUDA device{} with {} other ranks of its host. Start as many ranks "
        "on a host as it has devices.",
        rank, gpus, gpus == 1 ? "" : "s", together - 1);
  return before;
}

at::DeviceType& gpu_type() {
  static at::DeviceType type = at::kCUDA;
  return type;
}

int gpu_count() {
  if (gpu_type() == at::kCUDA && !at::detail::getCUDAHooks().hasCUDA()) return 0;
  return c10::impl::VirtualGuardImpl(gpu_type()).deviceCount();
}

namespace {

// Streams that share a queue of the device wait for each other's heads: one that waits for a peer could hold up the one
// that the peer waits for. A rank may have more streams than the 8 queues that CUDA takes by itself. CUDA reads this
// when it is first asked for a device.
void ask_for_queues() { ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0); }

}  // namespace

cluster::DeviceType device_type() {
  ask_for_queues();
  return gpu_count() > 0 ? cluster::DeviceType::cuda : cluster::DeviceType::cpu;
}

void require_device(cluster::DeviceType device) {
  if (device == cluster::DeviceType::cuda) ask_for_queues();
  if (device == cluster::DeviceType::cuda && gpu_count() == 0)
    user_error(
        "run.device = \"cuda\": this process has no CUDA device: libtorch was built without CUDA, or the driver shows "
        "none. Use \"cpu\", or build "
        "with a libtorch for CUDA and see nvidia-smi.");
}

RankSettings with_host_share(RankSettings settings, comm::Fabric& fabric, cluster::DeviceType device,
                             bool threads_of_one_process) {
  HostView mine = own_view();
  mine.device = device;
  const auto all = comm::all_gather_values(fabric, comm::everyone(fabric, kHostChannel), "what hosts have",
                                           kBeforeTheFirstStep, mine);
  require_one_type(all);
  const std::vector<int>& host = fabric.cluster().host;
  if (settings.threads == 0) settings.threads = threads_for(fabric.rank(), all, host);
  settings.device = at::Device(at::kCPU);
  if (device != cluster::DeviceType::cuda) return settings;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    const int gpu = gpu_for(rank, all, host, threads_of_one_process);
    if (rank == fabric.rank()) settings.device = at::Device(gpu_type(), static_cast<at::DeviceIndex>(gpu));
  }
  runtime::use_device(settings.device);
  return settings;
}

}  // namespace switchyard::train
