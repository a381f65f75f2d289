// Group collectives: where the way from one map to another is what a library has a call for, group by group.
#pragma once

#include <vector>

#include "base/group_call.hpp"
#include "layout/layout.hpp"

namespace switchyard::layout {

/// ranks: the group. pieces: boxes of equal sizes, one for each rank in its order, which together are the box that the
/// group gathers, or of which it makes the sum; of all_reduce that box alone.
struct GroupCollective {
  GroupCall call = GroupCall::all_gather;
  std::vector<int> ranks{};
  std::vector<Box> pieces{};
  bool operator==(const GroupCollective&) const = default;
};

/// The groups, if each rank that is to hold something is in one of them, and together they turn `from` into `to`: each
/// gets all that `to` has there, and a sum has each partial once. Otherwise, as for cuts into unequal pieces, all to
/// all, partials that stay, and ranks with several shards, none. Of several copies of a piece, or of a partial, the
/// first ones are in one group, the second ones in the next, and so on.
std::vector<GroupCollective> group_collectives(const ShardMap& from, const ShardMap& to);

}  // namespace switchyard::layout
