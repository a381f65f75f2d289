#include "config/switch_planner.hpp"

#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "base/errors.hpp"

namespace switchyard::config {
namespace {

TEST(SwitchPlanner, has_names) {
  for (const SwitchPlanner planner :
       {SwitchPlanner::relay, SwitchPlanner::greedy, SwitchPlanner::first, SwitchPlanner::round_robin})
    EXPECT_EQ(switch_planner_from(name_of(planner)), planner);
  EXPECT_EQ(name_of(SwitchPlanner::round_robin), "round-robin");
  EXPECT_EQ(message_of([] { switch_planner_from("roundrobin"); }),
            "planner \"roundrobin\" is unknown. Use relay, greedy, first or round-robin.");
  EXPECT_THROW(name_of(static_cast<SwitchPlanner>(4)), InternalError);
}

}  // namespace
}  // namespace switchyard::config
