// Ranks as threads of one process. A send posts the address of its block; the receiver copies or adds from there on its
// own thread. Waiting ranks sleep after half a millisecond. One lock per (channel, sender, receiver).
#pragma once

#include <memory>
#include <vector>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// Ends of one fabric for `ranks` ranks of `cluster` (InternalError if they differ in number); element r is rank r's.
/// A transaction that fails on one rank aborts the fabric: the others stop with its message as the reason.
std::vector<std::unique_ptr<Fabric>> thread_fabrics(int ranks, cluster::Cluster cluster, FabricOptions options = {});

}  // namespace switchyard::comm
