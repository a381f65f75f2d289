// Ranks of a run: threads of this process, or this process as one of many.
#pragma once

#include <functional>
#include <string>

#include "comm/fabric.hpp"
#include "comm/launch.hpp"

namespace switchyard::train {

/// Calls `work` once per local rank, each with its fabric: `ranks` threads of this process, or this process alone when it was
/// launched as one of many (then `ranks` must be 0 or the launch's size; UserError otherwise). Rethrows the first error; a
/// failing rank aborts the fabric, so that no other waits for it.
void on_ranks(int ranks, const comm::Launch& launch, const cluster::Cluster& local_cluster, const comm::FabricOptions& options,
              const std::function<void(comm::Fabric&)>& work);

}  // namespace switchyard::train
