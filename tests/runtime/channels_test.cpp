#include "runtime/channels.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "comm/forwarding_fabric.hpp"
#include "compiler/order.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using ir::Queue;

ir::Task send(Queue queue, int stage, std::vector<int> ranks) {
  return {.what = ir::Send{.stage = stage}, .queue = queue, .ranks = std::move(ranks)};
}

TEST(Channels, are_of_a_queue_whoever_takes_part) {
  const ir::Task reduce{.what = ir::Reduce{}, .queue = Queue::bulk, .ranks = {0, 1}};
  const ir::Task broadcast{.what = ir::Broadcast{}, .queue = Queue::bulk, .ranks = {1, 2}};
  EXPECT_EQ(channel_of(reduce).id, channel_of(broadcast).id);
  EXPECT_EQ(channel_of(reduce).ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(channel_of(broadcast).ranks, (std::vector<int>{1, 2}));
  const ir::Task run{.what = ir::Run{}, .ranks = {3, 4}};
  EXPECT_EQ(channel_within(run, Within::ring).ranks, (std::vector<int>{3, 4}));
}

TEST(Channels, of_queues_that_run_side_by_side_differ) {
  const ir::Task run{.what = ir::Run{}, .ranks = {0, 1}};
  std::set<int> numbers;
  for (const Within who : {Within::operators, Within::collectives, Within::ring, Within::pieces})
    EXPECT_TRUE(numbers.insert(channel_within(run, who).id).second);
  for (const Queue queue : {Queue::compute, Queue::bulk, Queue::gather, Queue::switching})
    EXPECT_TRUE(numbers.insert(channel_of({.what = ir::Reduce{}, .queue = queue, .ranks = {0, 1}}).id).second);
  for (const Queue queue : {Queue::forward, Queue::backward})
    for (const int stage : {0, 1, 2})
      EXPECT_TRUE(numbers.insert(channel_of(send(queue, stage, {0, 1})).id).second) << "stage " << stage;
  EXPECT_EQ(*numbers.begin(), kFirstChannel);
}

// Messages of a channel are matched in order: two ranks must have their common tasks in the same order, and one thread.
TEST(Channels, of_a_step_with_many_strategies_are_few) {
  const std::vector<std::string> specs = {"2,4,2", "4,4,1", "4,2,2", "8,2,1", "16,1,1", "8,1,2"};
  const std::vector<i64> bounds = {48, 40, 32, 24, 16, 12};
  const compiler::Plans plans = tiny_plans(specs, 16, 0, kFp64, 2);
  const Documents documents = tiny_documents(120, 5);
  const batch::StepPlan plan = tiny_batch(0, documents, plans, bounds);
  const ir::Program program = compiler::assemble(plan, plans, {});
  std::map<int, compiler::QueueKey> queues;
  for (const ir::Task& task : program.tasks) {
    if (!ir::is_transfer(task.kind())) continue;
    const compiler::QueueKey queue = compiler::queue_of(task, 0);
    EXPECT_EQ(queues.try_emplace(channel_of(task).id, queue).first->second, queue) << ir::name_of(task);
  }
  EXPECT_EQ(queues.size(), 5u) << "norm, moves, reductions, and between two stages forward and backward";
}

// Strategies with every kind of task between them.
const std::vector<std::vector<std::string>> kStrategies = {{"1,1,1"},          {"2,1,1"},
                                                           {"1,2,2", "4,1,1"}, {"dp=2,pp=2,schedule=zero-bubble"},
                                                           {"ring=2,tp=2"},    {"dp=4,zero=3", "1,4,1"}};

// A fabric that keeps the channels of messages between ranks that belong to programs.
class ChannelFabric final : public comm::ForwardingFabric {
 public:
  ChannelFabric(std::unique_ptr<comm::Fabric> inner, std::set<int>& seen, std::mutex& mutex)
      : ForwardingFabric(std::move(inner)), seen_(seen), mutex_(mutex) {}
  void run(const comm::Channel& channel, const comm::Transaction& transaction) override {
    if (channel.id >= kFirstChannel && transaction.name != "norm" && !transaction.ops.empty()) {
      const std::lock_guard lock(mutex_);
      seen_.insert(channel.id);
    }
    ForwardingFabric::run(channel, transaction);
  }

 private:
  std::set<int>& seen_;
  std::mutex& mutex_;
};

TEST(Channels, of_devices_are_all_on_which_a_job_moves_tensors_and_few_more) {
  for (const std::vector<std::string>& strategies : kStrategies) {
    const compiler::Plans plans = tiny_plans(strategies, 4);
    std::set<int> seen;
    std::mutex mutex;
    TinyOptions options;
    if (strategies.size() > 1) options.bounds = {kLongest, kLongest / 2};
    options.wrap = [&](std::unique_ptr<comm::Fabric> fabric) {
      return std::make_unique<ChannelFabric>(std::move(fabric), seen, mutex);
    };
    const TinyRun run = run_tiny(plans, {tiny_documents(9, 1)}, options);
    ASSERT_THAT(run.ends, testing::Each(testing::IsEmpty()));
    const std::vector<int> named = device_channels(plans);
    EXPECT_TRUE(std::ranges::is_sorted(named));
    for (const int channel : seen) EXPECT_TRUE(std::ranges::binary_search(named, channel)) << channel;
    EXPECT_LE(named.size(), seen.size() + 3);
  }
}

}  // namespace
}  // namespace switchyard::runtime
