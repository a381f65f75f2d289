#include "compiler/ring_keys.hpp"

#include <algorithm>
#include <map>

namespace switchyard::compiler {

bool RingKeys::any() const {
  return std::ranges::any_of(exchanges, [](const batch::KeyExchange& exchange) { return !exchange.rounds.empty(); });
}

i64 key_rows(const CompiledStrategy& strategy, int replica, int stage, RunPlace place,
             const batch::MicroBatch& micro_batch, const cluster::Cluster& cluster) {
  const auto ring = static_cast<size_t>(place.ring);
  if (strategy.strategy.exchange == KeyPassing::gather) return batch::keys_brought_together(micro_batch.shard[ring]);
  const std::vector<int> peers = strategy.ring_peers(replica, stage, place.position);
  return batch::key_exchange(micro_batch, KeyPassing::ring, layout::host_pattern(peers, cluster)).seen[ring].rows;
}

RingKeys ring_keys(const CompiledStrategy& strategy, int replica, int stage, const batch::MicroBatch& micro_batch,
                   const cluster::Cluster& cluster) {
  RingKeys keys;
  for (int ring = 0; ring < strategy.ring_ranks(replica); ++ring)
    keys.ranks.push_back(strategy.code_ranks(replica, stage, ring));
  std::map<std::vector<int>, size_t> known;  // positions by the hosts of their ring ranks
  for (size_t position = 0; position < keys.ranks[0].size(); ++position) {
    std::vector<int> peers;
    for (const std::vector<int>& ranks : keys.ranks) peers.push_back(ranks[position]);
    const std::vector<int> hosts = layout::host_pattern(peers, cluster);
    const auto [at, fresh] = known.try_emplace(hosts, position);
    keys.exchanges.push_back(fresh ? batch::key_exchange(micro_batch, strategy.strategy.exchange, hosts)
                                   : keys.exchanges[at->second]);
  }
  return keys;
}

}  // namespace switchyard::compiler
