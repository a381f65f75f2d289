#include "planner/ring_loads.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

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

double RingLoads::latency() const {
  const cluster::Hardware& hardware = units_.hardware();
  const double inside = hardware.intra_host.latency.count;
  return hardware.inter_host ? std::min(inside, hardware.inter_host->latency.count) : inside;
}

double RingLoads::across() const {
  const cluster::Hardware& hardware = units_.hardware();
  const auto seconds_of_byte = [](const cluster::LinkClass& link) { return link.shared_by / link.bandwidth.count; };
  return hardware.inter_host ? seconds_of_byte(*hardware.inter_host) / seconds_of_byte(hardware.intra_host) : 1;
}

PackedSequence RingLoads::assigned(const batch::MicroBatch& micro_batch, const Placement& p) const {
  const batch::Ring& ring = this->ring(p);
  const cluster::Hardware& hardware = units_.hardware();
  const cluster::LinkClass &inside = hardware.intra_host,
                           &between = hardware.inter_host ? *hardware.inter_host : hardware.intra_host;
  const double across = this->across();
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
  // Messages of one round are passed at the same time, the rounds one after the other. What crosses hosts shares an
  // adapter with the other ranks' messages that do.
  const int shared_by = std::clamp(between.shared_by / p.code_ranks(), 1, ring.ranks_per_host);
  const auto adapter_of = [&](size_t rank) { return rank / static_cast<size_t>(shared_by); };
  const batch::KeyExchange exchange = batch::key_exchange(micro_batch, KeyPassing::gather, hosts);
  for (const std::vector<batch::KeyMessage>& round : exchange.rounds) {
    std::map<std::pair<int, int>, double> between_two;
    for (const batch::KeyMessage& message : round) between_two[{message.from, message.to}] += message.count;
    struct Passed {
      double keys = 0, latency = 0;
      bool crosses = false;
    };
    std::vector<Passed> in(hosts.size()), out(hosts.size());
    std::vector<double> in_of_adapter(hosts.size(), 0), out_of_adapter(hosts.size(), 0);
    for (const auto& [pair, keys] : between_two) {
      const auto from = static_cast<size_t>(pair.first), to = static_cast<size_t>(pair.second);
      const bool crosses = hosts[from] != hosts[to];
      for (Passed* passed : {&in[to], &out[from]}) {
        passed->keys += crosses ? 0 : keys;
        passed->crosses = passed->crosses || crosses;
        passed->latency += (crosses ? between : inside).latency.count;
      }
      if (!crosses) continue;
      in_of_adapter[adapter_of(to)] += keys;
      out_of_adapter[adapter_of(from)] += keys;
    }
    double keys = 0, latency = 0;
    for (const auto& [of_ranks, of_adapters] : {std::pair(&in, &in_of_adapter), {&out, &out_of_adapter}})
      for (size_t rank = 0; rank < hosts.size(); ++rank) {
        const Passed& passed = (*of_ranks)[rank];
        const double crossing = passed.crosses ? (*of_adapters)[adapter_of(rank)] * across / shared_by : 0;
        keys = std::max(keys, passed.keys + crossing);
        latency = std::max(latency, passed.latency);
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
  PackedSequence shares{std::max<i64>(1, batch::tokens(micro_batch) / ring),
                        batch::attention_pairs(micro_batch) / ring};
  if (ring > 1)
    for (const batch::Piece& piece : micro_batch.shard.front())
      if (piece.doc >= 0) shares.longest = std::max<i64>(shares.longest, piece.count);
  return shares;
}

// The slowest rank has at least the nominal load of any other one: that of the document's ranks is its load over its
// degree on the average. What a nominal load takes at least follows from what it counts for tokens and pairs.
// Where the document is shared, its first rank sees all n keys, of which each of its ranks holds an even share, give or
// take two. Its own are there; the others come, whatever their way. Those of other hosts cross to one rank of its host:
// of h ranks one gets 1 / h of them at least, and what crosses to another rank comes to the first one in a later round.
double RingLoads::least(const Placement& p, i64 tokens, const Spent& least, double even) const {
  const batch::Ring& ring = this->ring(p);
  const batch::RingCosts& nominal = ring.costs;
  const double n = static_cast<double>(tokens), pairs = attention_pairs_of(tokens), ranks = ring.ranks,
               host = ring.ranks_per_host, across = this->across();
  const double whole = std::min(least.compute / nominal.per_token, least.per_pair / nominal.per_pair) *
                       (nominal.per_token * n + nominal.per_pair * pairs);
  if (whole <= even) return even;
  // On low to high ranks, where (all - own / degree) keys come, and a message from each other rank. The time falls down
  // to one of these degrees, or to an end.
  const auto shared = [&](double low, double high, double all, double own, double message) {
    double best = std::numeric_limits<double>::infinity();
    for (const double degree : {low, high, whole / std::max(even, whole / ranks),
                                std::sqrt(std::max(0.0, whole - least.per_key * own) / message)})
      if (degree >= low && degree <= high)
        best = std::min(best,
                        std::max(even, whole / degree) + least.per_key * (all - own / degree) + message * (degree - 1));
    return best;
  };
  const double near = std::min(1.0, across), crossing = across > 1 ? 1 + (across - 1) / host : near;
  const double all = near * (n - 2), own = near * n;
  const bool on_all = n >= 2 * host;  // each rank of a host has some of it to send
  const double low = std::max(2.0, host);
  const double in_host = shared(2, std::min(ranks, host), all, own, on_all ? least.exchanges * latency() : 0),
               over_hosts = std::max(shared(low, ranks, all, own, 0),
                                     shared(low, ranks, crossing * (n - 2 * host), crossing * host * n, 0));
  return std::max({std::min({whole, in_host, over_hosts}), even, whole / ranks});
}

ir::CallSize RingLoads::size(const Placement& p, i64 capacity, i64 longest) {
  if (p.ring() == 1) return {capacity, longest};
  const i64 share = (capacity + p.ring() - 1) / p.ring(), most = share + share / 32;
  return {
      .tokens = most, .longest = longest, .seen_keys = std::min(capacity, 2 * most), .in_steps = true, .in_ring = true};
}

StageMesh timed_mesh(const Placement& placement, const PackedSequence& micro_batch) {
  return micro_batch.keys > 0 ? placement.code_mesh_on_ring() : placement.code_mesh();
}

}  // namespace switchyard::planner
