// The relay policy for one unit: cross each host boundary once.
#pragma once

#include <span>

#include "switching/bundle.hpp"

namespace switchyard::switching {

/// Round 0: between hosts, each element once to every host that lacks it, to one of the ranks there that want it;
/// inside the hosts that have it, to all. Round 1: from the ranks that received it across hosts to the others there.
/// Ranges refer to the bundles.
RangeRounds relay_switch(std::span<const Bundle> bundles, const cluster::Cluster& cluster);

/// Round 0: on each host, the partials of a slice are added on one of the ranks that hold one, or on the owner. Round
/// 1: the sums cross to the owner. Last round: the owner's own sum.
RangeRounds relay_reduce(std::span<const Bundle> bundles, const cluster::Cluster& cluster);

}  // namespace switchyard::switching
