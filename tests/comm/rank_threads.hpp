// Runs every rank of a fabric on a thread of its own and collects how each one ended.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "comm/thread_fabric.hpp"

namespace switchyard::comm {

/// Hosts "a" and "b" with the ranks split evenly, the first host taking the odd one.
inline cluster::Cluster two_hosts(int ranks) {
  cluster::Cluster cluster;
  for (int r = 0; r < ranks; ++r) cluster.host.push_back(r < (ranks + 1) / 2 ? 0 : 1);
  cluster.names = {"a", "b"};
  return cluster;
}

/// Message of the exception that ended each rank; empty: none. A rank's exception does not stop the others.
inline std::vector<std::string> run_ranks(const std::vector<std::unique_ptr<Fabric>>& fabrics,
                                          const std::function<void(Fabric&)>& body) {
  std::vector<std::string> ends(fabrics.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < fabrics.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(*fabrics[r]);
      } catch (const std::exception& error) {
        ends[r] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

inline std::vector<std::string> run_ranks(int ranks, FabricOptions options, const std::function<void(Fabric&)>& body) {
  return run_ranks(thread_fabrics(ranks, two_hosts(ranks), options), body);
}

}  // namespace switchyard::comm
