#include "train/ranks.hpp"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/errors.hpp"
#include "comm/thread_fabric.hpp"

namespace switchyard::train {

void on_ranks(int ranks, const comm::Launch& launch, const cluster::Cluster& local_cluster, const comm::FabricOptions& options,
              const std::function<void(comm::Fabric&)>& work) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto guarded = [&](comm::Fabric& fabric) {
    try {
      work(fabric);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      fabric.abort(error.what());
    }
  };
  if (launch.distributed) {
    if (ranks > 0 && ranks != launch.size)
      user_error("the job is for {} ranks, but {} were launched. Launch {}, or change run.ranks.", ranks, launch.size, ranks);
    const auto fabric = comm::distributed_fabric(launch, options);
    guarded(*fabric);
    if (first) std::rethrow_exception(first);
    return;
  }
  auto fabrics = comm::thread_fabrics(ranks, local_cluster, options);
  std::vector<std::thread> threads;
  for (auto& fabric : fabrics) threads.emplace_back([&guarded, &fabric] { guarded(*fabric); });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace switchyard::train
