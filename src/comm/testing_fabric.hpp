// Fabrics for tests and rehearsals.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "comm/forwarding_fabric.hpp"

namespace switchyard::comm {

/// A fabric whose n-th transaction (counted from 1 over all channels) goes wrong.
class FaultyFabric final : public ForwardingFabric {
 public:
  /// fail: throws ClusterError without taking part.   silence: never comes back, as a hanging rank, until somebody
  /// aborts.
  enum class Fault { fail, silence };
  FaultyFabric(std::unique_ptr<Fabric> inner, i64 nth, Fault fault);

  void run(const Channel& channel, const Transaction& transaction) override;

 private:
  i64 nth_;
  Fault fault_;
  std::atomic<i64> runs_ = 0;
};

/// One rank of a simulated cluster: checks transactions and counts bytes, moves nothing, never waits.
class FakeFabric final : public Fabric {
 public:
  FakeFabric(int rank, cluster::Cluster cluster);

  int rank() const override { return rank_; }
  int size() const override { return cluster_.ranks(); }
  void run(const Channel& channel, const Transaction& transaction) override;
  /// Later calls throw ClusterError with the first reason.
  void abort(const std::string& reason) override;
  Traffic traffic() const override;
  const cluster::Cluster& cluster() const override { return cluster_; }
  i64 transactions() const;

 private:
  int rank_;
  cluster::Cluster cluster_;
  mutable std::mutex mutex_;
  Traffic traffic_{};
  i64 transactions_ = 0;
  std::string reason_;
};

}  // namespace switchyard::comm
