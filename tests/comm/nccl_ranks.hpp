// Ranks of an NCCL fabric as threads of one process, over the stand-in library.
#pragma once

#include <dlfcn.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/forwarding_fabric.hpp"
#include "comm/nccl_fabric.hpp"
#include "rank_threads.hpp"
#include "stream_device.hpp"

namespace switchyard::comm {

inline NcclOptions standin(std::chrono::milliseconds timeout, bool strict = false) {
  return {.library = STANDIN_NCCL, .channels = {0, 1, 2, 3, 4}, .timeout = timeout, .strict = strict};
}

/// With groups whose collectives on a channel are the library's, sums among them.
inline NcclOptions with_groups(std::vector<Channel> groups, std::chrono::milliseconds timeout, bool strict = false) {
  NcclOptions options = standin(timeout, strict);
  options.groups = std::move(groups);
  options.deterministic = false;
  return options;
}

/// How often the stand-in library's function was called in this process.
inline long nccl_calls(const char* function) {
  void* const library = dlopen(STANDIN_NCCL, RTLD_NOW);
  const long calls = reinterpret_cast<long (*)(const char*)>(dlsym(library, "standin_nccl_calls"))(function);
  dlclose(library);
  return calls;
}

/// The stand-in library goes wrong on purpose as long as it lives.
class NcclFault {
 public:
  explicit NcclFault(const char* fault, int rank = -1) { set(fault, rank); }
  ~NcclFault() { set("", -1); }
  NcclFault(const NcclFault&) = delete;
  NcclFault& operator=(const NcclFault&) = delete;

 private:
  static void set(const char* fault, int rank) {
    void* const library = dlopen(STANDIN_NCCL, RTLD_NOW);
    reinterpret_cast<void (*)(const char*, int)>(dlsym(library, "standin_nccl_fault"))(fault, rank);
    dlclose(library);
  }
};

using RankBody = std::function<void(Fabric&, const StreamDevice&)>;

/// Every rank opens, uses and closes its fabric on a thread of its own, with options of its own; results as run_ranks.
inline std::vector<std::string> run_nccl(const std::vector<NcclOptions>& options, const RankBody& body) {
  const int ranks = static_cast<int>(options.size());
  auto hosts = thread_fabrics(ranks, two_hosts(ranks), {options[0].timeout, options[0].strict});
  std::vector<std::string> ends(options.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < options.size(); ++r)
    threads.emplace_back([&, r] {
      const StreamDevice device;
      try {
        const auto fabric = nccl_fabric(*hosts[r], device, options[r]);
        body(*fabric, device);
        device.synchronise();
      } catch (const std::exception& error) {
        ends[r] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ends;
}
inline std::vector<std::string> run_nccl(int ranks, const NcclOptions& options, const RankBody& body) {
  return run_nccl(std::vector<NcclOptions>(static_cast<size_t>(ranks), options), body);
}

/// Gives blocks of hosts to another fabric as blocks of a device, and waits for them. Messages that are encoded stay on
/// the host.
class OnDevice final : public ForwardingFabric {
 public:
  OnDevice(Fabric& inner, const StreamDevice& device) : ForwardingFabric(inner), device_(device) {}
  void run(const Channel& channel, const Transaction& transaction) override {
    Transaction moved = transaction;
    const bool encoded = transaction.name == "encoded";
    for (Op& op : moved.ops) {
      if (op.decode) {
        op.decode = [this, decode = op.decode](std::span<const std::byte> bytes) {
          device_.synchronise();
          decode(bytes);
        };
      } else if (!encoded || op.kind == Op::Kind::local) {
        op.block.device = &device_;
        if (op.kind == Op::Kind::local) op.source.device = &device_;
      }
    }
    inner().run(channel, moved);
    for (const Op& op : moved.ops)
      for (const Block& block : {op.block, op.source})
        if (block.device) device_.settle(block);
  }

 private:
  const StreamDevice& device_;
};

}  // namespace switchyard::comm
