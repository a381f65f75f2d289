// The fabric of ranks that have a device each: messages between devices go by NCCL, in the order of streams, and all
// others by another fabric.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/fabric.hpp"

namespace switchyard::comm {

struct NcclOptions {
  std::string library{};  // name or path; empty: what SWITCHYARD_NCCL names, else libnccl.so.2
  // Whose transactions may have blocks on devices, equal on all ranks: each has a communicator of all ranks.
  std::vector<int> channels{};
  // Groups whose collectives on a channel are the library's, in the order of their pieces, equal on all ranks: each has
  // a communicator of its own.
  std::vector<Channel> groups{};
  bool deterministic = true;  // the library makes no sums
  std::chrono::milliseconds timeout{30000};
  bool strict = false;  // same as FabricOptions; ranks then compare number, size and type over the host's fabric
  // Thread blocks that all channels may have on a device together. They all fit one, so that no message waits for
  // another one that waits for a peer: an A100 has 108 multiprocessors. On a channel one thing happens after the other.
  int blocks = 104;
};

/// The first channel is the fabric's own: ranks exchange on it what they need to connect.
inline constexpr int kFabricChannel = 0;

/// All ranks of `host` call it, each on a thread that uses its device. `host` and `device` outlive the fabric. Of a
/// transaction, messages and local operations of blocks on devices are given to the calling thread's stream of
/// `device`; run() doesn't wait for them. They take turns with the others in the order of the list. Staging of strided
/// blocks and of additions is the device's memory. Collectives come after the messages of their transaction and in the
/// order of their groups, so that all ranks have one order.
///
/// A thread watches: a transaction that the device has begun, but not ended for the timeout in which the host hears of
/// no rank that works, an error that NCCL reports, and abort() of any rank end what is under way on this rank, and the
/// host's fabric informs the others. The destructor waits for what is under way. Ranks that disagree in sizes without
/// `strict` end by the timeout. UserError if the library can't be loaded; ClusterError if ranks can't be connected
/// within the timeout.
std::unique_ptr<Fabric> nccl_fabric(Fabric& host, const BlockDevice& device, NcclOptions options);

}  // namespace switchyard::comm
