// A fabric that knows how much processor time its threads spend on messages: copying, adding, and waiting awake.
#pragma once

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// Another fabric, which must outlive it.
class MeteredFabric final : public Fabric {
 public:
  explicit MeteredFabric(Fabric& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void run(const Channel& channel, const Transaction& transaction) override;
  void abort(const std::string& reason) override { inner_.abort(reason); }
  std::optional<std::string> failure() const override { return inner_.failure(); }
  Traffic traffic() const override { return inner_.traffic(); }
  bool moves_device_memory() const override { return inner_.moves_device_memory(); }
  const cluster::Cluster& cluster() const override { return inner_.cluster(); }

 private:
  Fabric& inner_;
};

/// A SecondsClock: processor time of the calling thread, without what it has spent in run() of metered fabrics.
double computing_seconds();

}  // namespace switchyard::comm
