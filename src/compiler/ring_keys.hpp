// Keys and values that the ring ranks of a run pass to one another.
#pragma once

#include <vector>

#include "batch/key_exchange.hpp"
#include "cluster/cluster.hpp"
#include "compiler/assemble.hpp"

namespace switchyard::compiler {

/// ranks: [ring rank][position of the code]. exchanges: by position, among the ring ranks there; which of them are on
/// one host may differ from position to position.
struct RingKeys {
  std::vector<std::vector<int>> ranks;
  std::vector<batch::KeyExchange> exchanges;
  /// Whether a rank sees keys of another one.
  bool any() const;
};

/// SeenKeys::rows of a ring rank, at a position.
i64 key_rows(const CompiledStrategy& strategy, int replica, int stage, RunPlace place,
             const batch::MicroBatch& micro_batch, const cluster::Cluster& cluster);

RingKeys ring_keys(const CompiledStrategy& strategy, int replica, int stage, const batch::MicroBatch& micro_batch,
                   const cluster::Cluster& cluster);

}  // namespace switchyard::compiler
