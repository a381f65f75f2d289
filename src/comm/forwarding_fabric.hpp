// A fabric that hands everything on to another one: what goes around a fabric derives from it.
#pragma once

#include <memory>
#include <utility>

#include "comm/fabric.hpp"

namespace switchyard::comm {

class ForwardingFabric : public Fabric {
 public:
  /// `inner` outlives it, or belongs to it.
  explicit ForwardingFabric(Fabric& inner) : inner_(inner) {}
  explicit ForwardingFabric(std::unique_ptr<Fabric> inner) : owned_(std::move(inner)), inner_(*owned_) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void run(const Channel& channel, const Transaction& transaction) override { inner_.run(channel, transaction); }
  void works() override { inner_.works(); }
  i64 work_heard() const override { return inner_.work_heard(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  std::optional<std::string> failure() const override { return inner_.failure(); }
  Traffic traffic() const override { return inner_.traffic(); }
  bool moves_device_memory() const override { return inner_.moves_device_memory(); }
  bool serves(int channel, GroupCall call, std::span<const int> ranks) const override {
    return inner_.serves(channel, call, ranks);
  }
  bool serves_any() const override { return inner_.serves_any(); }
  const cluster::Cluster& cluster() const override { return inner_.cluster(); }

 protected:
  Fabric& inner() const { return inner_; }

 private:
  std::unique_ptr<Fabric> owned_;
  Fabric& inner_;
};

}  // namespace switchyard::comm
