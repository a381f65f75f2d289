// A fabric that knows how much processor time its threads spend on messages: copying, adding, and waiting awake.
#pragma once

#include "comm/forwarding_fabric.hpp"

namespace switchyard::comm {

/// Another fabric, which must outlive it.
class MeteredFabric final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  void run(const Channel& channel, const Transaction& transaction) override;
};

/// A SecondsClock: processor time of the calling thread, without what it has spent in run() of metered fabrics.
double computing_seconds();

}  // namespace switchyard::comm
