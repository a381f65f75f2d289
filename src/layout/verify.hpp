// The proof of rounds of messages.
#pragma once

#include <span>
#include <vector>

#include "layout/messages.hpp"

namespace switchyard::layout {

using RoundSpans = std::span<const std::span<const Msg>>;
/// Copy: from has one partial, to has one partial. Throws InternalError naming tensor, box and ranks unless every
/// element of every destination shard is written exactly once: by a local message (src == dst) if its rank holds it in
/// `from`, else by a message whose source holds it in that round (from `from` itself or from an earlier round).
void verify_copied(RoundSpans rounds, const std::vector<ShardMap>& from, const std::vector<ShardMap>& to);
/// Sum: `to` has one owner per element and one partial; on each rank `from` has at most one shard per tensor that
/// contains a given element. A message carries the sender's running sum of the box as it stands when the round starts.
/// The receiver adds it to its own running sum if it holds the box in `from`, else straight into its `to` shard. A
/// local message (src == dst) adds the running sum into the `to` shard. Throws unless every destination element ends
/// with every partial of `from` exactly once.
void verify_summed(RoundSpans rounds, const std::vector<ShardMap>& from, const std::vector<ShardMap>& to);

}  // namespace switchyard::layout
