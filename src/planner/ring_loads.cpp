#include "planner/ring_loads.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "batch/key_exchange.hpp"
#include "compiler/bucket_spec.hpp"
#include "layout/exchange.hpp"
#include "simulator/segment_times.hpp"

namespace switchyard::planner {

const batch::Ring& RingLoads::ring(const Placement& p) const {
  const auto [it, fresh] = rings_.try_emplace({p.ring(), p.code_ranks()});
  if (!fresh) return it->second;
  const int layers = static_cast<int>(units_.model().layers);
  const Parts whole = parts_of(StageKind::whole, layers);
  const compiler::StageCost cost = whole.sum([&](StageKind kind) { return units_.plain_cost(kind, {}); });
  const i64 key_bytes = whole.sum([&](StageKind kind) { return units_.keys(kind, {}).all(); });
  constexpr int kExchanges = 2;  // exchanges of a layer: forward and backward
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

i64 RingLoads::columns(const Placement& p) const { return units_.keys(StageKind::middle, p.code_mesh()).columns; }

// On the ranks of the first pipeline, and of those beside it that share a port with them. Of the code's positions,
// which do the same, as many as share one.
compiler::RingKeys RingLoads::passed_on(const batch::MicroBatch& micro_batch, const Placement& p) const {
  const cluster::Hardware& hardware = units_.hardware();
  const int sharing = std::max(hardware.intra_host.shared_by, hardware.inter_host ? hardware.inter_host->shared_by : 1),
            positions = std::min(sharing, p.code_ranks()), pipelines = std::max(1, sharing / p.stage_ranks());
  compiler::RingKeys keys;
  keys.ranks.resize(static_cast<size_t>(p.ring()));
  std::map<std::vector<int>, size_t> known;  // positions by the hosts of their ring ranks
  for (int pipeline = 0; pipeline < pipelines; ++pipeline)
    for (int position = 0; position < positions; ++position) {
      std::vector<int> peers;
      for (std::vector<int>& ranks : keys.ranks) {
        const auto ring = static_cast<int>(&ranks - keys.ranks.data());
        ranks.push_back(pipeline * p.stage_ranks() + ring * p.code_ranks() + position);
        peers.push_back(ranks.back());
      }
      const std::vector<int> hosts = layout::host_pattern(peers, cluster_);
      const auto [at, fresh] = known.try_emplace(hosts, keys.exchanges.size());
      keys.exchanges.push_back(fresh ? batch::key_exchange(micro_batch, KeyPassing::gather, hosts)
                                     : keys.exchanges[at->second]);
    }
  return keys;
}

PackedSequence RingLoads::assigned(const batch::MicroBatch& micro_batch, const Placement& p) const {
  const batch::Ring& ring = this->ring(p);
  const auto load = [&](const PackedSequence& on) {
    return ring.costs.per_token * static_cast<double>(on.T) + ring.costs.per_pair * on.attention_pairs;
  };
  PackedSequence slowest;
  for (size_t rank = 0; rank < micro_batch.T.size(); ++rank) {
    const PackedSequence own{micro_batch.T[rank], batch::attention_pairs(micro_batch.shard[rank])};
    if (load(own) > load(slowest)) slowest = own;
  }
  const compiler::RingKeys keys = passed_on(micro_batch, p);
  const ir::KeyBytes& bytes = units_.keys(StageKind::middle, p.code_mesh());
  const auto seconds = [&](DType type, bool gradients) {
    const simulator::PassedKeys passed{std::vector<i64>(keys.exchanges.size(), bytes.columns), type, gradients};
    size_t rounds = 0;
    for (const batch::KeyExchange& exchange : keys.exchanges)
      rounds = std::max(rounds, (gradients ? exchange.returns : exchange.rounds).size());
    double sum = 0;
    for (size_t round = 0; round < rounds; ++round)
      sum += simulator::exchange_of(passed, keys, round, {}, units_.hardware(), cluster_).time.count;
    return sum;
  };
  slowest.values = seconds(bytes.type, false);
  slowest.gradients = seconds(bytes.gradient_type, true);
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
// Of f keys from other hosts and o from its own one, where crossing takes a times as long, x cross to the first rank:
// that takes as long as max(a x, o) + f - x of its host, which is a / (1 + a) (f + o) at least.
double RingLoads::least(const Placement& p, i64 tokens, const Spent& least, double even) const {
  const batch::Ring& ring = this->ring(p);
  const batch::RingCosts& nominal = ring.costs;
  const cluster::Hardware& hardware = units_.hardware();
  const int devices = hardware.devices_per_host, code = p.code_ranks();
  const double n = static_cast<double>(tokens), pairs = attention_pairs_of(tokens), ranks = ring.ranks,
               host = std::clamp((devices + code - 1) / code, 1, ring.ranks);  // most of them on a host
  const double across = hardware.inter_host
                            ? least_seconds_of_byte(*hardware.inter_host) / least_seconds_of_byte(hardware.intra_host)
                            : 1;
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
  // Where ring ranks fill hosts, spans of as many ranks as fit lie in one.
  const bool fills = ranks <= host || devices % code == 0;
  const double near = across / (1 + across), in_one = fills ? 1 : near,
               crossing = across > 1 ? 1 + (across - 1) / host : near;
  const bool on_all = n >= 2 * host;  // each rank of a host has some of it to send
  const double low = host + 1;
  const double in_host = shared(2, std::min(ranks, host), in_one * (n - 2), in_one * n,
                                on_all && fills ? (least.values + least.gradients) * latency() : 0),
               over_hosts = std::max(shared(low, ranks, near * (n - 2), near * n, 0),
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
  return micro_batch.values > 0 ? placement.code_mesh_on_ring() : placement.code_mesh();
}

}  // namespace switchyard::planner
