#include "compiler/bucket_spec.hpp"

#include <algorithm>
#include <numeric>

#include "compiler/replica_schedule.hpp"

namespace switchyard::compiler {
namespace {

// With context parallelism, twice its degree: each rank then has two chunks of equal size of a document. Of ring
// attention each rank's part is padded by itself, so its degree isn't in it.
i64 context_parallel_multiple(const config::Strategy& strategy) {
  i64 multiple = 1;
  for (const config::Group& group : strategy.groups)
    for (const config::Stage& stage : group.stages) {
      const int ulysses = stage.mesh[layout::StageAxis::ulysses];
      if (ulysses > 1 || stage.mesh[layout::StageAxis::ring] > 1) multiple = std::lcm(multiple, i64{2} * ulysses);
    }
  return multiple;
}

// All stages: what the ring ranks of a pipeline do for a micro-batch. Only costs and bytes are set.
batch::Ring ring_of(const CompiledStrategy& s, size_t group) {
  StageCost cost;
  i64 key_bytes = 0;
  int exchanges = 0;
  const auto& stages = s.groups[group].stages;
  for (size_t at = 0; at < stages.size(); ++at) {
    cost += s.cost[group][at];
    for (const Pass pass : {Pass::F, Pass::B, Pass::W})
      for (const ir::Instr& instr : stages[at].segment(pass).code)
        if (const i64 bytes = ir::key_bytes(stages[at], instr, 0).all(); bytes > 0) {
          key_bytes += bytes;
          ++exchanges;
        }
  }
  return {.costs = ring_costs(cost, key_bytes, exchanges), .key_bytes = key_bytes};
}

// Number of consecutive ring ranks on one host; of ranks that don't fill hosts evenly, all count as one host's.
int ring_ranks_per_host(const CompiledStrategy& s, int replica, const cluster::Cluster& cluster) {
  const int ranks = s.ring_ranks(replica);
  const auto host = [&](int ring) {
    return cluster.host.empty() ? 0 : cluster.host[static_cast<size_t>(s.code_ranks(replica, 0, ring).front())];
  };
  int per_host = 1;
  while (per_host < ranks && host(per_host) == host(0)) ++per_host;
  for (int ring = 0; ring < ranks; ++ring)
    if (host(ring) != host(ring / per_host * per_host) || (ring >= per_host && host(ring) == host(ring - per_host)))
      return ranks;
  return per_host;
}

std::vector<batch::Ring> rings_of(const CompiledStrategy& s, const cluster::Cluster& cluster) {
  std::vector<batch::Ring> rings;
  const bool any = std::ranges::any_of(s.strategy.groups, [](const config::Group& group) {
    return group.stages.front().mesh[layout::StageAxis::ring] > 1;
  });
  if (!any) return rings;
  for (size_t replica = 0; replica < s.replicas.size(); ++replica) {
    const int number = static_cast<int>(replica);
    batch::Ring& ring = rings.emplace_back(ring_of(s, static_cast<size_t>(s.replicas[replica].group)));
    ring.ranks = s.ring_ranks(number);
    ring.ranks_per_host = ring_ranks_per_host(s, number, cluster);
  }
  return rings;
}

}  // namespace

batch::RingCosts ring_costs(const StageCost& cost, i64 key_bytes, int exchanges) {
  constexpr double kLatency = 1e5;  // bytes of memory that a nominal device moves meanwhile
  const NominalDevice device = nominal_device(cost.compute);
  batch::RingCosts costs;
  for (const Pass pass : {Pass::F, Pass::B, Pass::W}) {
    SegmentCost of = cost.of(pass);
    of.bytes_fixed = 0;
    costs.per_token += device.seconds(of, 1, 0).count;
    costs.per_pair += device.seconds(of, 0, 1).count;
  }
  costs.per_key_inside = static_cast<double>(key_bytes) / device.inside;
  costs.per_key_across = static_cast<double>(key_bytes) / device.across;
  costs.per_ring_step = exchanges * kLatency / device.memory;
  return costs;
}

batch::BucketSpec bucket_spec(const Plans& plans, int strategy, i64 max_length) {
  const CompiledStrategy& compiled = plans.strategies()[static_cast<size_t>(strategy)];
  const config::Strategy& made = compiled.strategy;
  batch::BucketSpec spec{.max_length = max_length, .strategy = strategy};
  spec.replicas = static_cast<int>(compiled.replicas.size());
  spec.micro_batch_tokens = made.micro_batch_tokens;
  spec.micro_batch_sequences = made.micro_batch_sequences;
  spec.multiple = compiled.multiple;
  spec.stream = made.packing == config::Packing::stream;
  if (spec.stream) spec.document_multiple = context_parallel_multiple(made);
  spec.paired = made.paired;
  spec.rings = rings_of(compiled, plans.cluster());
  spec.uniform_degree = made.ring_degree == config::RingDegree::uniform;
  for (const Replica& replica : compiled.replicas) {
    const auto& stages = made.groups[static_cast<size_t>(replica.group)].stages;
    const size_t deep = stages.size() / static_cast<size_t>(made.chunk_count());
    double ranks = 0;
    for (size_t stage = 0; stage < deep; ++stage)
      ranks += static_cast<double>(stages[stage].mesh.ranks()) / stages[stage].mesh.replicas();
    spec.pipelines.push_back({.speed = ranks, .stages = static_cast<int>(deep)});
  }
  return spec;
}

}  // namespace switchyard::compiler
