// Ranks as processes joined by TCP, with no MPI: rank 0 listens at the launch's address, and the others learn each
// other's addresses there.
#pragma once

#include <memory>

#include "comm/fabric.hpp"
#include "comm/launch.hpp"

namespace switchyard::comm {

/// This process's end; all processes of the launch call it. ClusterError naming the address if the others don't come
/// within the timeout. Ranks of equal `host` (the machine's name if empty) share a host.
std::unique_ptr<Fabric> tcp_fabric(const Launch& launch, FabricOptions options);

}  // namespace switchyard::comm
