// Fewer, larger messages.
#pragma once

#include <vector>

#include "layout/reshard.hpp"

namespace switchyard::switching {

/// Joins messages of one round between the same ranks whose boxes form a box and lie in the same shards of `from` and
/// `to`, so that whatever could be said of each part can be said of the whole. Bytes, and who has what when, stay the
/// same. Result in the order of layout::sort_messages. `from`, `to`: by the tensors that the messages name.
std::vector<layout::Msg> coalesce(std::vector<layout::Msg> messages, const std::vector<layout::ShardMap>& from,
                                  const std::vector<layout::ShardMap>& to);

}  // namespace switchyard::switching
