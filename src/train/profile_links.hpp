// Links under load: pairs of ranks exchange messages at the same time.
#pragma once

#include <optional>
#include <span>
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

/// Messages over a class of links. times: bytes and seconds of an exchange, ascending sizes. sum_share: the largest
/// one's time to its time where the receiver adds. crowded: how many times as long it takes while all devices of two
/// hosts exchange. overlap_slowdown: as Hardware's.
struct LinkTimes {
  double latency = 0;
  std::vector<std::pair<double, double>> times{};
  double sum_share = 1, crowded = 1, overlap_slowdown = 1;
};
/// One measurement of the classes of links that the ranks have.
struct Links {
  std::optional<LinkTimes> intra_host, inter_host;
};

/// fabric: by which ranks exchange what lies on their devices. Every rank calls it and gets the same result.
Links measure_links(MeasurementBarrier& barrier, comm::Fabric& fabric, const RankSettings& settings,
                    const cluster::Hardware& hardware);

/// Fills in the means of some measurements, at least one: a shared machine is slow for seconds at a time. shared_by:
/// one device per port, or all devices of a host, if pairs that exchange at once divide the rate of a single pair.
void set_links(std::span<const Links> measured, cluster::Hardware& hardware);

}  // namespace switchyard::train
