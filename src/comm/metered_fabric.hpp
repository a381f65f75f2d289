// A fabric that knows how much processor time its threads spend on messages: copying, adding, and waiting awake.
#pragma once

#include <utility>

#include "comm/forwarding_fabric.hpp"

namespace switchyard::comm {

/// Another fabric, which must outlive it, in the place of one between the ranks of `cluster`.
class MeteredFabric final : public ForwardingFabric {
 public:
  MeteredFabric(Fabric& inner, cluster::Cluster cluster) : ForwardingFabric(inner), cluster_(std::move(cluster)) {}
  void run(const Channel& channel, const Transaction& transaction) override;
  const cluster::Cluster& cluster() const override { return cluster_; }

 private:
  cluster::Cluster cluster_;
};

/// A SecondsClock: processor time of the calling thread, without what it has spent in run() of metered fabrics.
double computing_seconds();

}  // namespace switchyard::comm
