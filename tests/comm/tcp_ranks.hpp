// Ranks of a TCP fabric as threads of one process.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp_fabric.hpp"
#include "free_port.hpp"

namespace switchyard::comm {

inline Launch launch_of(int rank, int size, int port, const std::string& host = "a") {
  return {.distributed = true,
          .rank = rank,
          .size = size,
          .via = Via::tcp,
          .master_address = "127.0.0.1",
          .master_port = port,
          .host = host};
}

/// Every rank opens, uses and closes its fabric on a thread of its own; hosts and results as run_ranks.
inline std::vector<std::string> run_tcp(int ranks, FabricOptions options, const std::function<void(Fabric&)>& body) {
  const int port = free_port();
  std::vector<std::string> ends(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        const auto fabric = tcp_fabric(launch_of(r, ranks, port, r < (ranks + 1) / 2 ? "a" : "b"), options);
        body(*fabric);
      } catch (const std::exception& error) {
        ends[static_cast<size_t>(r)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

}  // namespace switchyard::comm
