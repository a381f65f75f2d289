#include "planner/ring_loads.hpp"

#include <algorithm>

#include "batch/key_exchange.hpp"
#include "compiler/bucket_spec.hpp"

namespace switchyard::planner {

const batch::Ring& RingLoads::ring(const Placement& p) const {
  const auto [it, fresh] = rings_.try_emplace({p.ring(), p.code_ranks()});
  if (!fresh) return it->second;
  const int layers = static_cast<int>(units_.model().layers);
  const Parts whole = parts_of(StageKind::whole, layers);
  const compiler::StageCost cost = whole.sum([&](StageKind kind) { return units_.plain_cost(kind, {}); });
  const i64 key_bytes = whole.sum([&](StageKind kind) { return units_.key_bytes(kind, {}); });
  constexpr int kExchanges = 2;  // of a layer: forward and backward
  batch::RingCosts costs = compiler::ring_costs(cost, key_bytes, kExchanges * layers);
  for (double* part : {&costs.per_token, &costs.per_pair, &costs.per_key_inside, &costs.per_key_across})
    *part /= p.code_ranks();
  return it->second = {.ranks = p.ring(),
                       .ranks_per_host = std::clamp(units_.hardware().devices_per_host / p.code_ranks(), 1, p.ring()),
                       .costs = costs,
                       .known = known_};
}

PackedSequence RingLoads::assigned(const batch::MicroBatch& micro_batch, const Placement& p) const {
  const batch::Ring& ring = this->ring(p);
  const cluster::Hardware& hardware = units_.hardware();
  const auto seconds_of_byte = [](const cluster::LinkClass& link) { return link.shared_by / link.bandwidth.count; };
  const cluster::LinkClass &inside = hardware.intra_host,
                           &between = hardware.inter_host ? *hardware.inter_host : hardware.intra_host;
  const double across = seconds_of_byte(between) / seconds_of_byte(inside);
  const auto load = [&](const PackedSequence& on) {
    return ring.costs.per_token * static_cast<double>(on.T) + ring.costs.per_pair * on.attention_pairs;
  };
  std::vector<int> hosts(micro_batch.T.size());
  for (size_t rank = 0; rank < hosts.size(); ++rank) hosts[rank] = static_cast<int>(rank) / ring.ranks_per_host;
  PackedSequence slowest;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const PackedSequence own{micro_batch.T[rank], batch::attention_pairs(micro_batch.shard[rank])};
    if (load(own) > load(slowest)) slowest = own;
  }
  // Those of a round pass at the same time, those of another one after them.
  for (const std::vector<batch::KeyMessage>& round : batch::key_exchange(micro_batch, hosts).rounds) {
    std::map<std::pair<int, int>, double> between_two;
    for (const batch::KeyMessage& message : round) between_two[{message.from, message.to}] += message.count;
    std::vector<PackedSequence> in(hosts.size()), out(hosts.size());
    for (const auto& [pair, keys] : between_two) {
      const auto from = static_cast<size_t>(pair.first), to = static_cast<size_t>(pair.second);
      const bool crosses = hosts[from] != hosts[to];
      for (PackedSequence* passed : {&in[to], &out[from]}) {
        passed->keys += keys * (crosses ? across : 1);
        passed->latency += (crosses ? between : inside).latency.count;
      }
    }
    double keys = 0, latency = 0;
    for (const auto* passed : {&in, &out})
      for (const PackedSequence& of_rank : *passed) {
        keys = std::max(keys, of_rank.keys);
        latency = std::max(latency, of_rank.latency);
      }
    slowest.keys += keys;
    slowest.latency += latency;
  }
  // Nominal rates may take the wrong one for the slowest, which has even shares at least.
  const PackedSequence shares = even(micro_batch, p.ring());
  slowest.T = std::max(slowest.T, shares.T);
  slowest.attention_pairs = std::max(slowest.attention_pairs, shares.attention_pairs);
  return slowest;
}

PackedSequence RingLoads::even(const batch::MicroBatch& micro_batch, int ring) {
  return {std::max<i64>(1, batch::tokens(micro_batch) / ring), batch::attention_pairs(micro_batch) / ring};
}

ir::CallSize RingLoads::size(const Placement& p, i64 capacity, i64 longest) {
  if (p.ring() == 1) return {capacity, longest};
  const i64 share = (capacity + p.ring() - 1) / p.ring();
  return {share + share / 8, longest, capacity};
}

StageMesh timed_mesh(const Placement& placement, const PackedSequence& micro_batch) {
  return micro_batch.keys > 0 ? placement.code_mesh_on_ring() : placement.code_mesh();
}

}  // namespace switchyard::planner
