// Who sends what in a hot switch.
#pragma once

#include <string_view>

namespace switchyard::config {

/// Who sends a slice that a rank lacks.
/// relay: it crosses to a host once, then spreads inside (a reduction adds inside, then crosses); loads are evened out.
/// greedy: the published baseline, layout::nearest_sender with loads carried over the units. first: the first holder.
/// round_robin: the holders in turn. These three use one round.
enum class SwitchPlanner { relay, greedy, first, round_robin };

/// "relay", "greedy", "first", "round-robin"; UserError otherwise.
SwitchPlanner switch_planner_from(std::string_view name);
std::string_view name_of(SwitchPlanner planner);

}  // namespace switchyard::config
