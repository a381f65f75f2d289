#include "comm/testing_fabric.hpp"

#include <thread>
#include <utility>

#include "base/errors.hpp"
#include "comm/protocol.hpp"

namespace switchyard::comm {

FaultyFabric::FaultyFabric(std::unique_ptr<Fabric> inner, i64 nth, Fault fault)
    : ForwardingFabric(std::move(inner)), nth_(nth), fault_(fault) {}

void FaultyFabric::run(const Channel& channel, const Transaction& transaction) {
  if (++runs_ != nth_) return inner().run(channel, transaction);
  const std::string who = rank_label(rank(), cluster());
  if (fault_ == Fault::fail)
    cluster_error("{}: \"{}\" failed on purpose as transaction {}.", who, transaction.name, nth_);
  for (;;) {
    inner().run(channel, {transaction.name, transaction.number, {}});  // throws once a rank has aborted
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

FakeFabric::FakeFabric(int rank, cluster::Cluster cluster) : rank_(rank), cluster_(std::move(cluster)) {
  check(rank >= 0 && rank < cluster_.ranks(), "rank {} on a cluster of {} ranks", rank, cluster_.ranks());
}

void FakeFabric::run(const Channel& channel, const Transaction& transaction) {
  check_transaction(rank_, channel, transaction);
  std::lock_guard lock(mutex_);
  if (!reason_.empty()) throw ClusterError(stopped(rank_label(rank_, cluster_), transaction.name, reason_));
  count_traffic(traffic_, rank_, transaction, cluster_);
  ++transactions_;
}

void FakeFabric::abort(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = reason_of(rank_label(rank_, cluster_), reason);
}

Traffic FakeFabric::traffic() const {
  std::lock_guard lock(mutex_);
  return traffic_;
}

i64 FakeFabric::transactions() const {
  std::lock_guard lock(mutex_);
  return transactions_;
}

}  // namespace switchyard::comm
