// The ranks of one host as a fabric of their own, for work that is to send nothing between hosts.
#pragma once

#include <vector>

#include "comm/forwarding_fabric.hpp"

namespace switchyard::comm {

/// `inner`'s ranks on the host of this rank, numbered from 0 in their order. Channels are those of `inner`, which must
/// outlive it; errors name its ranks. All ranks of the host make one. It serves no collectives.
class HostFabric final : public ForwardingFabric {
 public:
  explicit HostFabric(Fabric& inner);
  int rank() const override { return rank_; }
  int size() const override { return cluster_.ranks(); }
  void run(const Channel& channel, const Transaction& transaction) override;
  bool serves(int, GroupCall, std::span<const int>) const override { return false; }
  bool serves_any() const override { return false; }
  const cluster::Cluster& cluster() const override { return cluster_; }

 private:
  std::vector<int> ranks_;  // of `inner`
  int rank_ = 0;
  cluster::Cluster cluster_;
};

}  // namespace switchyard::comm
