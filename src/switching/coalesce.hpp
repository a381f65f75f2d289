// Fewer, larger messages.
#pragma once

#include <vector>

#include "layout/messages.hpp"
#include "switching/bundle.hpp"

namespace switchyard::switching {

/// The messages of a round's ranges. Those between the same ranks whose boxes form a box and lie in the same shards of
/// `from` and `to` are joined, so that every property of the parts holds for the whole. Bytes stay the same, and so
/// does which rank has what after each round. Result in the order of layout::sort_messages. `from`, `to`: by the
/// tensors that the bundles name.
std::vector<layout::Msg> coalesced(std::vector<BundleRange> ranges, const std::vector<layout::ShardMap>& from,
                                   const std::vector<layout::ShardMap>& to);

}  // namespace switchyard::switching
