#include "config/switch_planner.hpp"

#include <array>

#include "base/errors.hpp"

namespace switchyard::config {
namespace {

constexpr std::array<std::string_view, 4> kNames{"relay", "greedy", "first", "round-robin"};

}  // namespace

SwitchPlanner switch_planner_from(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<SwitchPlanner>(i);
  user_error("planner \"{}\" is unknown. Use relay, greedy, first or round-robin.", name);
}

std::string_view name_of(SwitchPlanner planner) {
  check(static_cast<size_t>(planner) < kNames.size(), "name_of: switch planner {} of {}", static_cast<int>(planner),
        kNames.size());
  return kNames[static_cast<size_t>(planner)];
}

}  // namespace switchyard::config
