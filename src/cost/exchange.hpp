// Messages that start together.
#pragma once

#include <span>

#include "cluster/hardware.hpp"

namespace switchyard::cost {

/// What one rank has for another one.
struct Parcel {
  int from = 0, to = 0;
  i64 bytes = 0;
};

/// Until the last of the parcels has come; several between two ranks go as one message. What a rank has for itself takes no time.
/// formula  the longest over all ports and directions of  a n + sum of N / (B share(N));  n: most messages of one rank at the port
///          a ring all-gather, reduce-scatter or all-to-all, sent directly, takes as long as cost/links.hpp says of the ring
/// errors   InternalError if a parcel needs a class of link that the hardware lacks
Seconds exchange(const cluster::Hardware& hardware, const cluster::Cluster& placement, std::span<const Parcel> parcels);

}  // namespace switchyard::cost
