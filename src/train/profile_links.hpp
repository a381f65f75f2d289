// Links as transfers find them, pairs of ranks exchanging side by side.
#pragma once

#include "cluster/hardware.hpp"
#include "train/profile_meeting.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// Fills in the classes of links that the ranks have, with their slow-down beside computing; one device to a port, or where pairs that
/// exchange at once divide what one of them has, all devices of a host. Every rank calls it and gets the same.
void profile_links(Meeting& meeting, const RankSettings& settings, cluster::Hardware& hardware);

}  // namespace switchyard::train
