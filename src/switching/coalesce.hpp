// Fewer, larger messages.
#pragma once

#include <vector>

#include "layout/reshard.hpp"

namespace switchyard::switching {

/// Joins messages of one round between the same ranks whose boxes form a box and lie in the same shards of `from` and
/// `to`, so that every property of the parts holds for the whole. Bytes stay the same, and so does which rank has what
/// after each round. Result in the order of layout::sort_messages. `from`, `to`: by the tensors that the messages name.
std::vector<layout::Msg> coalesce(std::vector<layout::Msg> messages, const std::vector<layout::ShardMap>& from,
                                  const std::vector<layout::ShardMap>& to);

}  // namespace switchyard::switching
