// The exchanges among a group of ranks for which libraries have a call of their own.
#pragma once

#include <string_view>

namespace switchyard {

/// all_gather: every rank gets the pieces of all. reduce_scatter: every rank gets the sum of its piece over the ranks.
/// all_reduce: every rank gets the whole sum.
enum class GroupCall { all_gather, reduce_scatter, all_reduce };
/// "all_gather", "reduce_scatter", "all_reduce".
std::string_view name_of(GroupCall call);
/// Whether something is added, so that its rounding depends on the order.
inline bool sums(GroupCall call) { return call != GroupCall::all_gather; }

}  // namespace switchyard
