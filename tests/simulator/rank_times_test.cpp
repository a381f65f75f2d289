#include "simulator/rank_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "simple_steps.hpp"

namespace switchyard::simulator {
namespace {

//  seconds   0     1     2     3     4     5     6     8
//  compute   |=run========|-gather-|     |=run======|
//  switching       |-move-------------------|
TEST(RankTimes, tell_what_overlaps_and_when_nothing_happens) {
  ir::Program program;
  program.tasks = {{.what = ir::Run{}, .queue = ir::Queue::compute, .ranks = {0}},
                   {.what = ir::Move{}, .queue = ir::Queue::switching, .ranks = {0}},
                   {.what = ir::Run{}, .queue = ir::Queue::compute, .ranks = {0}}};
  program.of_rank = {{0, 1, 2}};
  const std::vector<std::vector<Span>> spans = {{{0, 2, false}, {2, 3, true}}, {{1, 5, true}}, {{4, 6, false}}};
  std::vector<TaskTime> tasks;
  TaskGraph graph({0});
  for (size_t id = 0; id < spans.size(); ++id) {
    tasks.push_back({spans[id].front().begin, spans[id].back().end, spans[id]});
    graph.add_task(id, {});
  }
  const std::vector<RankTime> times = rank_times(program, tasks, 8, SymmetryFolding(graph));
  ASSERT_EQ(times.size(), 1u);
  EXPECT_DOUBLE_EQ(times[0].compute, 4);
  EXPECT_DOUBLE_EQ(times[0].communication, 4) << "the gather beside the move counts once";
  EXPECT_DOUBLE_EQ(times[0].overlap, 2);
  EXPECT_DOUBLE_EQ(times[0].idle, 2);
}

//  seconds   0     1     2     3     4     5     6
//  compute   |=run============|gather|     |=run=|
//  gather          |----------|
//  switching             |-move--------|
TEST(RankTimes, tell_what_a_run_transfers_beside_its_computing) {
  ir::Program program;
  program.tasks = {{.what = ir::Run{}, .queue = ir::Queue::compute, .ranks = {0}},
                   {.what = ir::Move{}, .queue = ir::Queue::switching, .ranks = {0}},
                   {.what = ir::Run{}, .queue = ir::Queue::compute, .ranks = {0}}};
  program.of_rank = {{0, 1, 2}};
  const std::vector<std::vector<Span>> spans = {
      {{0, 1, false}, {1, 3, false}, {1, 3, true}, {3, 4, true}}, {{2, 4.5, true}}, {{5, 6, false}}};
  std::vector<TaskTime> tasks;
  TaskGraph graph({0});
  for (size_t id = 0; id < spans.size(); ++id) {
    tasks.push_back({spans[id].front().begin, spans[id].back().end, spans[id]});
    graph.add_task(id, {});
  }
  const std::vector<RankTime> times = rank_times(program, tasks, 7, SymmetryFolding(graph));
  EXPECT_DOUBLE_EQ(times[0].compute, 4);
  EXPECT_DOUBLE_EQ(times[0].communication, 3.5) << "from 1 to 4.5";
  EXPECT_DOUBLE_EQ(times[0].overlap, 2);
  EXPECT_DOUBLE_EQ(times[0].idle, 1.5);
}

TEST(RankTimes, account_for_the_whole_step) {
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.intra_host = {{2e-6}, {1e9}, 1, {}};
  hardware.inter_host = cluster::LinkClass{{1e-5}, {1e8}, 2, {}};
  for (auto& [type, rates] : hardware.device.rates) rates.memory = {1e10};
  hardware.device.launch = {1e-6};
  for (const auto& strategies :
       std::vector<std::vector<std::string>>{{"1,2,2", "4,1,1"}, {"2,2,1", "2,1,2", "1,4,1"}}) {
    const compiler::Plans plans = plans_under(strategies, 2, 2);
    const Step step(plans, 5);
    const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
    double overlap = 0;
    for (const RankTime& rank : simulation.ranks) {
      EXPECT_NEAR(rank.compute + rank.communication - rank.overlap + rank.idle, simulation.step_seconds, 1e-12);
      EXPECT_GT(rank.communication, 0);
      EXPECT_GE(rank.idle, -1e-12);
      overlap += rank.overlap;
    }
    EXPECT_GT(overlap, 0) << "switches and reductions run beside";
  }
}

// What a rank's own tasks say, instant by instant.
RankTime time_of(const Step& step, const Simulation& simulation, size_t rank) {
  std::set<double> instants{0, simulation.step_seconds};
  std::vector<Span> spans;
  for (const int id : step.program.of_rank[rank])
    for (const Span& span : simulation.tasks[static_cast<size_t>(id)].spans) {
      instants.insert({span.begin, span.end});
      spans.push_back(span);
    }
  RankTime sum;
  for (auto begin = instants.begin(), end = std::next(begin); end != instants.end(); ++begin, ++end) {
    const auto any = [&](bool communication) {
      return std::ranges::any_of(spans, [&](const Span& span) {
        return span.communication == communication && span.begin <= *begin && span.end >= *end;
      });
    };
    const bool computes = any(false), communicates = any(true);
    (computes ? sum.compute : sum.idle) += computes || !communicates ? *end - *begin : 0;
    if (communicates) sum.communication += *end - *begin;
    if (computes && communicates) sum.overlap += *end - *begin;
  }
  return sum;
}

TEST(RankTimes, of_ranks_that_do_the_same_are_those_of_their_own_tasks) {
  cluster::Hardware hardware = arithmetic_only(2, 4);
  hardware.intra_host = {{2e-6}, {1e9}, 1, {}};
  hardware.inter_host = cluster::LinkClass{{1e-5}, {1e8}, 4, {}};
  hardware.overlap_slowdown = 1.3;
  for (auto& [type, rates] : hardware.device.rates) rates.memory = {1e10};
  for (const int shared_by : {1, 2, 4})
    for (const int documents : {4, 8, 9})
      for (const auto& strategies : std::vector<std::vector<std::string>>{
               {"8,1,1"}, {"2,2,2"}, {"4,2,1"}, {"2,2,2", "8,1,1"}, {"1,4,2", "2,2,2", "4,1,2"}}) {
        hardware.inter_host->shared_by = shared_by;
        const compiler::Plans plans = plans_under(strategies, 2, 4);
        const Step step(plans, documents);
        const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
        for (size_t rank = 0; rank < 8; ++rank) {
          const RankTime own = time_of(step, simulation, rank);
          EXPECT_NEAR(simulation.ranks[rank].compute, own.compute, 1e-12) << strategies[0] << " rank " << rank;
          EXPECT_NEAR(simulation.ranks[rank].communication, own.communication, 1e-12)
              << strategies[0] << " rank " << rank;
          EXPECT_NEAR(simulation.ranks[rank].overlap, own.overlap, 1e-12) << strategies[0] << " rank " << rank;
          EXPECT_NEAR(simulation.ranks[rank].idle, own.idle, 1e-12) << strategies[0] << " rank " << rank;
        }
      }
}

}  // namespace
}  // namespace switchyard::simulator
