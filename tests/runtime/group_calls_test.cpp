#include "runtime/group_calls.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "one_reshard.hpp"
#include "runtime/channels.hpp"
#include "serving_fabric.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::Each;
using testing::IsEmpty;

TinyRun run_served(const compiler::Plans& plans, const TinyOptions& given, bool with_sums, CallsSeen& seen) {
  TinyOptions options = given;
  const std::vector<comm::Channel> groups = collective_groups(plans, with_sums);
  options.wrap = [&](std::unique_ptr<comm::Fabric> fabric) {
    return std::make_unique<ServingFabric>(std::move(fabric), groups, with_sums, seen);
  };
  TinyRun run = run_tiny(plans, {tiny_documents(9, 1), tiny_documents(9, 2)}, options);
  for (const comm::Channel& group : seen.groups) EXPECT_EQ(std::ranges::count(groups, group), 1);
  return run;
}

struct Case {
  std::vector<std::string> strategies;
  int zero = 1;
};

// What a run has without collectives, it has with gathers to the bit, and with sums to rounding.
void expect_same(const Case& c, int hosts) {
  SCOPED_TRACE(testing::PrintToString(c.strategies) + " on " + std::to_string(hosts) + " hosts");
  const compiler::Plans plans = tiny_plans(c.strategies, 4, 0, kFp64, hosts, c.zero);
  TinyOptions options;
  for (size_t s = 0; s < c.strategies.size(); ++s) options.bounds.resize(s + 1, kLongest / static_cast<i64>(s + 1));
  const TinyRun plain = run_tiny(plans, {tiny_documents(9, 1), tiny_documents(9, 2)}, options);
  ASSERT_THAT(plain.ends, Each(IsEmpty()));
  for (const bool with_sums : {false, true}) {
    CallsSeen seen;
    const TinyRun served = run_served(plans, options, with_sums, seen);
    ASSERT_THAT(served.ends, Each(IsEmpty()));
    EXPECT_TRUE(served.copies_agree);
    EXPECT_GT(seen.calls[GroupCall::all_gather], 0);
    EXPECT_EQ(seen.calls[GroupCall::reduce_scatter] > 0, with_sums);
    for (size_t step = 0; step < 2; ++step) {
      EXPECT_TRUE(with_sums || served.steps[step].loss == plain.steps[step].loss);
      EXPECT_NEAR(served.steps[step].loss, plain.steps[step].loss, 1e-12);
      EXPECT_NEAR(served.steps[step].norm, plain.steps[step].norm, 1e-11);
    }
    for (size_t p = 0; p < plain.master.size(); ++p) {
      EXPECT_TRUE(with_sums || served.master[p].equal(plain.master[p]))
          << plans.graph().param(static_cast<int>(p)).name;
      EXPECT_LT(gap(served.master[p], plain.master[p]), 1e-10);
    }
  }
}

TEST(GroupCalls, ChangeNothingOfARunButTheRoundingOfSums) {
  for (const Case& c : {Case{{"tp=4"}}, Case{{"dp=4"}}, Case{{"dp=4"}, 0}, Case{{"dp=4,zero=2"}}, Case{{"dp=4,zero=3"}},
                        Case{{"dp=2,tp=2,zero=3"}}, Case{{"tp=2,depth=2"}}, Case{{"tp=4,inner=2"}},
                        Case{{"1,4,1", "4,1,1", "2,1,2"}}, Case{{"ring=2,tp=2"}}})
    expect_same(c, 1);
  for (const Case& c : {Case{{"tp=4"}}, Case{{"dp=4,zero=3"}}, Case{{"1,4,1", "4,1,1"}}}) expect_same(c, 2);
}

TEST(GroupCalls, SumsOfActivationsForEveryRankAreOneCall) {
  const compiler::Plans plans = [] {
    ir::Graph graph = models::build(tiny_llama(), kFp64, models::Output::loss);
    ir::differentiate(graph);
    return compiler::Plans(std::move(graph),
                           {config::strategy_from_spec("tp=4,sequence_parallel=false", 4, tiny_llama().layers, {})}, 0,
                           cluster::uniform(1, 4), switching::Planner::relay);
  }();
  for (const bool with_sums : {false, true}) {
    CallsSeen seen;
    EXPECT_THAT(run_served(plans, {}, with_sums, seen).ends, Each(IsEmpty()));
    EXPECT_EQ(seen.calls[GroupCall::all_reduce] > 0, with_sums);
    EXPECT_GT(seen.calls[GroupCall::all_gather], 0) << "of the sums, where ranks make parts of them";
  }
}

TEST(GroupCalls, ARankHasAtMostSixteenGroupsAndEachCollectiveHasAllOfItsOrNone) {
  const compiler::Plans plans = tiny_plans({"tp=2,depth=2,dp=2", "dp=4,tp=2", "dp=8,zero=3", "dp=2,tp=4,zero=2",
                                            "dp=4,tp=2,zero=3", "tp=4,inner=2,dp=2", "dp=2,depth=2,tp=2"},
                                           8);
  for (const bool with_sums : {false, true}) {
    const std::vector<comm::Channel> groups = collective_groups(plans, with_sums);
    std::map<int, int> of_rank;
    for (const comm::Channel& group : groups) {
      EXPECT_EQ(std::ranges::count(groups, group), 1);
      for (const int rank : group.ranks) ++of_rank[rank];
    }
    for (const auto& [rank, count] : of_rank) EXPECT_LE(count, kMostGroups);
    const bool full = std::ranges::any_of(of_rank, [](const auto& entry) { return entry.second == kMostGroups; });
    EXPECT_EQ(full, with_sums);
    EXPECT_EQ(groups[0].id, channel_within({}, Within::collectives).id);
  }
  EXPECT_THAT(collective_groups(tiny_plans({"1,1,1"}, 1), true), IsEmpty());
}

TEST(GroupCalls, MessagesThatMayBeEncodedStayMessages) {
  config::StrategySettings settings;
  settings.compression.gradients = codecs::Codec::int8;
  CallsSeen plain, encoded;
  EXPECT_THAT(run_served(tiny_plans({"dp=4"}, 4), {}, true, plain).ends, Each(IsEmpty()));
  EXPECT_THAT(run_served(tiny_plans({"dp=4"}, 4, 0, kFp64, 1, 1, settings), {}, true, encoded).ends, Each(IsEmpty()));
  EXPECT_GT(plain.calls[GroupCall::reduce_scatter], 0);
  EXPECT_EQ(encoded.calls[GroupCall::reduce_scatter], 0);
  EXPECT_EQ(encoded.calls[GroupCall::all_gather], plain.calls[GroupCall::all_gather]) << "of parameters";
}

}  // namespace
}  // namespace switchyard::runtime
