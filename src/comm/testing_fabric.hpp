// Fabrics for tests and rehearsals.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// A fabric whose n-th transaction (counted from 1 over all channels) goes wrong.
class FaultyFabric final : public Fabric {
 public:
  /// fail: throws ClusterError without taking part.   silence: never comes back, as a hanging rank, until somebody
  /// aborts.
  enum class Fault { fail, silence };
  FaultyFabric(std::unique_ptr<Fabric> inner, i64 nth, Fault fault);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void run(const Channel& channel, const Transaction& transaction) override;
  void abort(const std::string& reason) override { inner_->abort(reason); }
  std::optional<std::string> failure() const override { return inner_->failure(); }
  Traffic traffic() const override { return inner_->traffic(); }
  bool moves_device_memory() const override { return inner_->moves_device_memory(); }
  const cluster::Cluster& cluster() const override { return inner_->cluster(); }

 private:
  std::unique_ptr<Fabric> inner_;
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
