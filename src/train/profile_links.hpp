// Links under load: pairs of ranks exchange messages at the same time.
#pragma once

#include <utility>
#include <vector>

#include "cluster/hardware.hpp"
#include "train/measurement_barrier.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// Latency, bandwidth and curve that fit measured messages. latency: seconds of the smallest message; times: bytes and
/// seconds, ascending sizes. The bandwidth is the best rate beyond the latency that the next larger message keeps; the
/// curve has shares of it.
cluster::LinkClass link_of(double latency, std::vector<std::pair<double, double>> times);

/// Fills in the classes of links that the ranks have, and the slowdown of overlap with computing. fabric: by which they
/// exchange what lies on their devices. shared_by: one device per port, or all devices of a host, if pairs that
/// exchange at once divide the rate of a single pair. Every rank calls it and gets the same result.
void profile_links(MeasurementBarrier& barrier, comm::Fabric& fabric, const RankSettings& settings,
                   cluster::Hardware& hardware);

}  // namespace switchyard::train
