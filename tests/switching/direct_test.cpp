#include "switching/direct.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "model_maps.hpp"

namespace switchyard::switching {
namespace {

const cluster::Cluster kHosts = cluster::uniform(2, 3);

std::vector<TensorSlice> one(std::vector<int> holders, std::vector<int> partials, std::vector<int> takers) {
  return {{0, {{1, {0}, {10}}, std::move(holders), std::move(partials), std::move(takers)}}};
}

TEST(DirectPlanner, greedy_prefers_the_receivers_host_and_evens_out_what_was_sent) {
  DirectPlanner planner(Planner::greedy, kHosts);
  const auto slices = one({0, 1, 3}, {0, 0, 0}, {2, 4, 5});
  EXPECT_EQ(pairs(planner.switch_unit(slices).rounds[0], 1), "0>2 10; 3>4 10; 3>5 10");
  EXPECT_EQ(pairs(planner.switch_unit(slices).rounds[0], 1), "1>2 10; 3>4 10; 3>5 10");
}

TEST(DirectPlanner, greedy_crosses_once_per_receiver) {
  DirectPlanner planner(Planner::greedy, kHosts);
  EXPECT_EQ(planner.switch_unit(one({0, 1}, {0, 0}, {3, 4, 5})).rounds[0].size(), 3u);
}

TEST(DirectPlanner, first_always_takes_the_first_holder) {
  DirectPlanner planner(Planner::first, kHosts);
  EXPECT_EQ(planner.switch_unit(one({1, 3}, {0, 0}, {2, 4, 5})).rounds[0][2].src, 1);
}

TEST(DirectPlanner, round_robin_takes_turns_over_units_too) {
  DirectPlanner planner(Planner::round_robin, kHosts);
  const auto slices = one({1, 3}, {0, 0}, {2, 4, 5});
  EXPECT_EQ(planner.switch_unit(slices).rounds[0][0].src, 1);
  EXPECT_EQ(planner.switch_unit(slices).rounds[0][0].src, 3);
}

TEST(DirectPlanner, what_a_taker_holds_is_a_local_message) {
  DirectPlanner planner(Planner::first, kHosts);
  const auto plan = planner.switch_unit(one({0, 1}, {0, 0}, {1}));
  EXPECT_EQ(plan.rounds[0][0].src, 1);
}

TEST(DirectPlanner, a_reduce_brings_each_partial_to_the_owner_once) {
  DirectPlanner planner(Planner::greedy, kHosts);
  const auto plan = planner.reduce_unit(one({0, 1, 2, 3, 4}, {0, 0, 1, 2, 1}, {3}));
  EXPECT_EQ(pairs(plan.rounds[0], 1), "0>3 10; 4>3 10");
  EXPECT_EQ(plan.rounds[1].size(), 1u);
}

TEST(DirectPlanner, refuses_what_it_cannot_do) {
  EXPECT_THROW(DirectPlanner(Planner::relay, kHosts), InternalError);
  DirectPlanner planner(Planner::first, kHosts);
  EXPECT_THROW(planner.reduce_unit(one({0}, {0}, {1, 2})), InternalError);
}

}  // namespace
}  // namespace switchyard::switching
