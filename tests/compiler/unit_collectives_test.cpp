#include "compiler/unit_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "batch/planner.hpp"
#include "compiler/bucket_spec.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using ir::TaskKind;
using testing::ElementsAre;
using testing::IsEmpty;

Plans zero_plans(const std::vector<std::string>& specs, int ranks, int hosts = 1, int zero = 1) {
  const config::ModelConfig model = small_llama();
  std::vector<config::Strategy> strategies;
  for (const std::string& spec : specs) {
    config::StrategySettings settings;
    settings.zero = zero;
    strategies.push_back(config::strategy_from_spec(spec, ranks, model.layers, settings));
  }
  return Plans(training_graph(model), strategies, 0, cluster::uniform(hosts, ranks / hosts), switching::Planner::relay);
}

// The groups of a parameter whose first dim every cut here divides.
std::vector<std::vector<int>> groups_of(const UnitCollectives& collectives, const Plans& plans, int unit,
                                        GroupCall call) {
  std::vector<std::vector<int>> groups;
  for (const int param : plans.units()[static_cast<size_t>(unit)].tensors) {
    if (plans.graph().param(param).shape.dims() < 2 || !collectives.of_param.contains(param)) continue;
    for (const layout::GroupCollective& group : collectives.of_param.at(param)) {
      EXPECT_EQ(group.call, call);
      groups.push_back(group.ranks);
    }
    break;
  }
  return groups;
}

TEST(UnitCollectives, AreTheGathersAndReductionsForRuns) {
  const Plans plans = zero_plans({"dp=4,zero=3"}, 4);
  const UnitTransfer gather{.kind = TaskKind::gather, .unit = 1, .strategy = 0, .group = 0, .part = 0, .stage = 0};
  EXPECT_THAT(groups_of(collectives_of(gather, plans), plans, 1, GroupCall::all_gather),
              ElementsAre(ElementsAre(0, 1, 2, 3)));
  UnitTransfer reduce = gather;
  reduce.kind = TaskKind::reduce_scatter;
  const UnitCollectives reduced = collectives_of(reduce, plans);
  EXPECT_THAT(groups_of(reduced, plans, 1, GroupCall::reduce_scatter), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_EQ(reduced.round, std::ssize(plans.of_runs(0)[0][0][0][1].reduce.rounds) - 1);
}

TEST(UnitCollectives, OfReplicasOfSeveralRanksHaveAGroupForEachPlaceInThem) {
  for (const int hosts : {1, 2}) {
    const Plans plans = zero_plans({"dp=2,tp=2"}, 4, hosts);
    const UnitTransfer reduce{.kind = TaskKind::reduce, .unit = 1, .strategy = 0},
        move{.kind = TaskKind::move, .unit = 1, .strategy = 0};
    EXPECT_THAT(groups_of(collectives_of(reduce, plans), plans, 1, GroupCall::reduce_scatter),
                ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
    EXPECT_THAT(groups_of(collectives_of(move, plans), plans, 1, GroupCall::all_gather),
                ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
    EXPECT_EQ(collectives_of(move, plans).round, 0);
  }
}

TEST(UnitCollectives, OfCopiesAtHomeGatherTheSums) {
  const Plans plans = zero_plans({"dp=4"}, 4, 1, 0);
  const UnitTransfer broadcast{.kind = TaskKind::broadcast, .unit = 1};
  EXPECT_THAT(groups_of(collectives_of(broadcast, plans), plans, 1, GroupCall::all_gather),
              ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(UnitCollectives, OfASwitchAreThoseOfThePreviousStrategysCopies) {
  const Plans plans = zero_plans({"tp=4", "dp=4", "dp=2,tp=2"}, 4);
  const UnitTransfer wider{.kind = TaskKind::move, .unit = 1, .before = 0, .strategy = 1},
      narrower{.kind = TaskKind::move, .unit = 1, .before = 1, .strategy = 0},
      across{.kind = TaskKind::move, .unit = 1, .before = 2, .strategy = 0};
  EXPECT_THAT(groups_of(collectives_of(wider, plans), plans, 1, GroupCall::all_gather),
              ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(collectives_of(narrower, plans).of_param, IsEmpty()) << "every rank has its part";
  EXPECT_THAT(collectives_of(across, plans).of_param, IsEmpty());
  const Plans copies = zero_plans({"dp=4", "tp=4"}, 4, 1, 0);
  const UnitTransfer back{.kind = TaskKind::move, .unit = 1, .before = 1, .strategy = 0};
  EXPECT_THAT(collectives_of(back, copies).of_param, IsEmpty()) << "home has all of it on every rank";
}

batch::StepPlan batch_of(const Plans& plans) {
  std::vector<batch::BucketSpec> buckets;
  const int strategies = static_cast<int>(plans.strategies().size());
  std::vector<i64> lengths;
  for (int s = 0; s < strategies; ++s) {
    buckets.push_back(bucket_spec(plans, s, 32 * (strategies - s)));
    lengths.insert(lengths.end(), 6, 32 * (strategies - s) - 3);
  }
  return batch::plan_batch(1, lengths, buckets, {1, 0.01});
}

// In the program, each group is within one task of its round, and the messages of these parameters go to its members
// alone, within its pieces.
TEST(UnitCollectives, EachGroupIsWithinOneTaskAndHasAllThatItsMessagesBring) {
  std::set<TaskKind> seen;
  for (const int hosts : {1, 2})
    for (const auto& [specs, zero] : {std::pair(std::vector<std::string>{"dp=4,zero=3"}, 1),
                                      {{"dp=2,tp=2,zero=2"}, 1},
                                      {{"tp=2,depth=2"}, 1},
                                      {{"dp=4"}, 0},
                                      {{"tp=4", "dp=4", "dp=2,pp=2"}, 1},
                                      {{"dp=2,tp=2", "ring=4", "dp=2,ulysses=2,zero=3"}, 1}}) {
      SCOPED_TRACE(testing::PrintToString(specs));
      const Plans plans = zero_plans(specs, 4, hosts, zero);
      const batch::StepPlan plan = batch_of(plans);
      const ir::Program program = assemble(plan, plans, {});
      std::map<UnitTransfer, std::vector<const ir::Task*>> tasks;
      for (const ir::Task& task : program.tasks)
        if (ir::is_transfer(task.kind()) && !task.is<ir::Send>() && !task.is<ir::Norm>())
          tasks[unit_transfer_of(task, plan, plans)].push_back(&task);
      for (const auto& [transfer, parts] : tasks) {
        const UnitCollectives collectives = collectives_of(transfer, plans);
        for (const auto& [param, groups] : collectives.of_param) {
          seen.insert(transfer.kind);
          std::map<int, const layout::GroupCollective*> of_rank;
          for (const layout::GroupCollective& group : groups) {
            const auto has_all = [&](const ir::Task* task) {
              return task->round() == collectives.round &&
                     std::ranges::includes(task->ranks, std::set<int>(group.ranks.begin(), group.ranks.end()));
            };
            EXPECT_GE(std::ranges::count_if(parts, has_all), 1);
            for (const int rank : group.ranks) EXPECT_TRUE(of_rank.emplace(rank, &group).second);
          }
          for (const ir::Task* task : parts)
            for (const layout::Msg& m : task->messages) {
              if (m.tensor != param) continue;
              ASSERT_TRUE(of_rank.contains(m.dst)) << ir::name_of(*task);
              EXPECT_TRUE(of_rank.contains(m.src)) << ir::name_of(*task);
              i64 covered = 0;
              for (const layout::Box& piece : of_rank.at(m.dst)->pieces)
                covered += layout::intersect(piece, m.box).elements();
              EXPECT_EQ(covered, m.box.elements());
            }
        }
      }
    }
  EXPECT_THAT(seen, testing::UnorderedElementsAre(TaskKind::move, TaskKind::gather, TaskKind::reduce_scatter,
                                                  TaskKind::reduce, TaskKind::broadcast));
}

TEST(UnitCollectives, ListHasOneTransferForLayersThatDifferInNamesOnly) {
  const Plans plans = zero_plans({"dp=4,zero=3", "tp=4"}, 4);
  std::map<std::pair<TaskKind, int>, int> kinds;
  for (const UnitTransfer& transfer : unit_transfers(plans)) ++kinds[{transfer.kind, transfer.strategy}];
  const int units = static_cast<int>(plans.units().size());
  for (const auto& [kind, count] : kinds) EXPECT_LT(count, 2 * units);
  EXPECT_EQ((kinds[{TaskKind::gather, 0}]), 3) << "embedding, layers, head";
  EXPECT_TRUE(kinds.contains({TaskKind::move, 1}));
}

}  // namespace
}  // namespace switchyard::compiler
