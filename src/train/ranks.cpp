#include "train/ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/errors.hpp"
#include "base/messages.hpp"
#include "comm/device_work.hpp"
#include "comm/nccl_fabric.hpp"
#include "comm/protocol.hpp"
#include "comm/thread_fabric.hpp"
#include "kernels/device_memory.hpp"
#include "runtime/channels.hpp"
#include "runtime/group_calls.hpp"
#include "runtime/tensor_device.hpp"

namespace switchyard::train {

void check_threads(i64 ranks, i64 threads) {
  if (ranks < 1) user_error("there can't be {} ranks. Use 1 or more.", ranks);
  if (threads < 0) user_error("a rank can't compute with {} threads. Use 1 or more.", threads);
  const i64 of_rank = std::max<i64>(1, threads);
  if (ranks > kMostThreads || of_rank > kMostThreads || ranks * of_rank > kMostThreads)
    user_error(
        "{} rank{} of {} thread{} each: this process would start more than {} threads. Use fewer, or start ranks as "
        "processes on several hosts.",
        ranks, ranks == 1 ? "" : "s", of_rank, of_rank == 1 ? "" : "s", kMostThreads);
}

std::chrono::milliseconds timeout_of(const config::FabricSettings& settings) {
  return std::chrono::milliseconds(static_cast<i64>(settings.timeout.count * 1000));
}

comm::FabricOptions fabric_options(const config::FabricSettings& settings) {
  comm::FabricOptions options;
  options.timeout = timeout_of(settings);
  options.strict = settings.strict;
  options.interface = settings.interface;
  options.token = settings.token_file.empty() ? settings.token : comm::read_token(settings.token_file);
  options.say = [](const std::string& text) { print_message(stderr, "switchyard: {}\n", text); };
  return options;
}

JoinedFabric join_ranks(int ranks, const comm::Launch& launch, const comm::FabricOptions& options) {
  if (!launch.distributed) return nullptr;
  if (ranks > 0 && ranks != launch.size)
    user_error("the job is for {} ranks, but {} were launched. Launch {}, or change run.ranks.", ranks, launch.size,
               ranks);
  return comm::distributed_fabric(launch, options);
}

void on_ranks(int ranks, const comm::Launch& launch, const cluster::Cluster& local_cluster,
              const comm::FabricOptions& options, const std::function<void(comm::Fabric&)>& work, JoinedFabric joined) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto guarded = [&](comm::Fabric& fabric) {
    try {
      try {
        work(fabric);
      } catch (const c10::OutOfMemoryError& error) {
        kernels::out_of_device_memory(fabric.rank(), "its part of the model", error);
      }
    } catch (const std::exception& error) {
      fabric.abort(error.what());
      const std::lock_guard lock(mutex);
      if (!first || comm::ended_the_job(fabric, error)) first = std::current_exception();
    }
  };
  if (launch.distributed) {
    if (!joined) joined = join_ranks(ranks, launch, options);
    guarded(*joined);
    if (first) std::rethrow_exception(first);
    return;
  }
  auto fabrics = comm::thread_fabrics(ranks, local_cluster, options);
  std::vector<std::thread> threads;
  for (auto& fabric : fabrics) threads.emplace_back([&guarded, &fabric] { guarded(*fabric); });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

DeviceChannels channels_of(const compiler::Plans& plans, const config::FabricSettings& settings) {
  return {runtime::device_channels(plans), runtime::collective_groups(plans, !settings.deterministic)};
}

void on_devices(comm::Fabric& host, const at::Device& device, const std::function<DeviceChannels()>& channels,
                const config::FabricSettings& settings, const std::function<void(comm::Fabric&)>& work) {
  if (device.is_cpu() || host.size() == 1) return work(host);
  const comm::BlockDevice& of_rank = *runtime::block_device(device);
  const auto signed_host = comm::with_device_work(host, of_rank);
  if (host.moves_device_memory() || !settings.nccl) return work(*signed_host);
  DeviceChannels of_job = channels();
  comm::NcclOptions options{.channels = std::move(of_job.ids),
                            .groups = std::move(of_job.groups),
                            .deterministic = settings.deterministic,
                            .timeout = timeout_of(settings),
                            .strict = settings.strict};
  if (of_job.blocks > 0) options.blocks = of_job.blocks;
  const auto fabric = comm::nccl_fabric(*signed_host, of_rank, std::move(options));
  try {
    work(*fabric);
  } catch (const std::exception& error) {
    fabric->abort(error.what());  // before the fabric says less of it, as it is taken down
    throw;
  }
}

}  // namespace switchyard::train
