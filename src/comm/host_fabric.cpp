#include "comm/host_fabric.hpp"

#include <algorithm>

namespace switchyard::comm {

HostFabric::HostFabric(Fabric& inner) : ForwardingFabric(inner) {
  const cluster::Cluster& all = inner.cluster();
  for (int rank = 0; rank < inner.size(); ++rank) {
    if (rank == inner.rank()) rank_ = static_cast<int>(ranks_.size());
    if (all.same_host(rank, inner.rank())) ranks_.push_back(rank);
  }
  cluster_ = cluster::uniform(1, static_cast<int>(ranks_.size()));
  cluster_.overlaps_collectives = all.overlaps_collectives;
}

void HostFabric::run(const Channel& channel, const Transaction& transaction) {
  const auto of_inner = [&](int rank) { return ranks_[static_cast<size_t>(rank)]; };
  Channel theirs = channel;
  std::ranges::transform(theirs.ranks, theirs.ranks.begin(), of_inner);
  Transaction all = transaction;
  for (Op& op : all.ops)
    if (op.kind != Op::Kind::local) op.peer = of_inner(op.peer);
  inner().run(theirs, all);
}

}  // namespace switchyard::comm
