#include "runtime/channels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/errors.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using ir::Queue;

ir::Task reduce(std::vector<int> ranks) {
  return {.what = ir::Reduce{}, .queue = Queue::bulk, .ranks = std::move(ranks)};
}

// FNV-1a of queue, stage and ranks in 31 bits, as channels were numbered once, is the same for these two, which have
// ranks 46 and 56 in common.
TEST(Channels, ThatAHashTakesForOneAreTwo) {
  const ir::Program program{.tasks = {reduce({46, 48, 56, 61}), reduce({10, 31, 46, 56})}, .of_rank = {}};
  Channels channels;
  channels.add(program);
  EXPECT_EQ(channels.of(program.tasks[0]).id, kFirstChannel);
  EXPECT_EQ(channels.of(program.tasks[1]).id, kFirstChannel + 1);
}

TEST(Channels, OfATaskAreThoseOfItsQueueRanksAndSendingStage) {
  const ir::Task run{.what = ir::Run{}, .ranks = {0, 1}};
  const auto send = [](Queue queue, int stage) {
    return ir::Task{.what = ir::Send{.stage = stage}, .queue = queue, .ranks = {0, 1}};
  };
  const ir::Program program{.tasks = {run, send(Queue::forward, 0), send(Queue::forward, 1), send(Queue::backward, 1),
                                      reduce({0, 1}), reduce({0, 1}), run},
                            .of_rank = {}};
  Channels channels;
  channels.add(program);
  EXPECT_EQ(channels.within(run, Within::operators).channel.id, kFirstChannel);
  EXPECT_EQ(channels.within(run, Within::collectives).channel.id, kFirstChannel + 1);
  EXPECT_EQ(channels.within(run, Within::ring).channel.id, kFirstChannel + 2);
  for (size_t id = 1; id <= 4; ++id)
    EXPECT_EQ(channels.of(program.tasks[id]).id, kFirstChannel + 2 + static_cast<int>(id));
  EXPECT_EQ(channels.of(program.tasks[5]).id, channels.of(program.tasks[4]).id);
  EXPECT_EQ(channels.of(program.tasks[5]).ranks, (std::vector<int>{0, 1}));
}

TEST(Channels, KeepTheirNumbersAndTasksInLaterPrograms) {
  const ir::Task run{.what = ir::Run{}, .ranks = {0, 1}};
  Channels channels;
  channels.add({.tasks = {reduce({0, 1}), run}, .of_rank = {}});
  ++channels.within(run, Within::collectives).row;
  channels.add({.tasks = {reduce({0, 2}), run, reduce({0, 1})}, .of_rank = {}});
  EXPECT_EQ(channels.of(reduce({0, 1})).id, kFirstChannel);
  EXPECT_EQ(channels.within(run, Within::operators).channel.id, kFirstChannel + 1);
  EXPECT_EQ(channels.within(run, Within::operators).row, 0);
  EXPECT_EQ(channels.within(run, Within::collectives).row, 1);
  EXPECT_EQ(channels.of(reduce({0, 2})).id, kFirstChannel + 4);
}

TEST(Channels, OfProgramsThatWereNotAddedAreUnknown) {
  Channels channels;
  EXPECT_THROW(channels.of(reduce({0, 1})), InternalError);
  EXPECT_THROW(channels.within({.what = ir::Run{}, .ranks = {0}}, Within::operators), InternalError);
}

// One number for each set of ranks, queue and sending stage of a step with many strategies; none is skipped, and none
// is another's.
TEST(Channels, OfAStepWithManyStrategiesAreConsecutive) {
  const std::vector<std::string> specs = {"2,4,2", "4,4,1", "4,2,2", "8,2,1", "16,1,1", "8,1,2"};
  const std::vector<i64> bounds = {48, 40, 32, 24, 16, 12};
  const compiler::Plans plans = tiny_plans(specs, 16, 0, kFp64, 2);
  const Documents documents = tiny_documents(120, 5);
  const batch::StepPlan plan = tiny_batch(0, documents, plans, bounds);
  const ir::Program program = compiler::assemble(plan, plans, {});
  Channels channels;
  channels.add(program);
  std::set<std::tuple<int, int, std::vector<int>>> kinds;
  std::set<int> numbers;
  for (const ir::Task& task : program.tasks) {
    if (ir::is_transfer(task.kind()) &&
        kinds.insert({static_cast<int>(task.queue), ir::stage_of_queue(task), task.ranks}).second) {
      EXPECT_TRUE(numbers.insert(channels.of(task).id).second) << ir::name_of(task);
      EXPECT_EQ(channels.of(task).ranks, task.ranks);
    }
    if (task.is<ir::Run>() && kinds.insert({-1, 0, task.ranks}).second) {
      for (const Within who : {Within::operators, Within::collectives, Within::ring})
        EXPECT_TRUE(numbers.insert(channels.within(task, who).channel.id).second) << ir::name_of(task);
    }
  }
  EXPECT_GT(numbers.size(), 50u);
  EXPECT_EQ(*numbers.begin(), kFirstChannel);
  EXPECT_EQ(*numbers.rbegin(), kFirstChannel + static_cast<int>(numbers.size()) - 1);
}

}  // namespace
}  // namespace switchyard::runtime
