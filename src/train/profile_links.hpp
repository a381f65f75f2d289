// Links as transfers find them, pairs of ranks exchanging side by side.
#pragma once

#include <utility>
#include <vector>

#include "cluster/hardware.hpp"
#include "train/measurement_barrier.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// Latency, bandwidth and curve of messages that took so long. latency: what the smallest one takes; times: bytes and
/// seconds, rising sizes. The bandwidth is the best rate beyond the latency that the next larger message keeps; the
/// curve has shares of it.
cluster::LinkClass link_of(double latency, std::vector<std::pair<double, double>> times);

/// Fills in the classes of links that the ranks have, with their slow-down beside computing; one device to a port, or
/// where pairs that exchange at once divide what one of them has, all devices of a host. Every rank calls it and gets
/// the same.
void profile_links(MeasurementBarrier& barrier, const RankSettings& settings, cluster::Hardware& hardware);

}  // namespace switchyard::train
