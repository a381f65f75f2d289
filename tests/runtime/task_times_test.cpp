#include "runtime/task_times.hpp"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "../standin/test_device.hpp"

namespace switchyard::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;

const at::Device& device() {
  static const at::Device found = standin::test_device();
  return found;
}

void work() { at::ones({64}, at::TensorOptions().device(device())).add_(1); }

TaskTimes times_of(const ir::Task& task) {
  TaskTimes times(7, task, 0, device());
  times.start();
  work();
  times.end();
  return times;
}

TEST(TaskTimes, OfARunAreItsWorkWithoutWhatItWaitsFor) {
  const ir::Task run{.what = ir::Run{}, .queue = ir::Queue::compute, .ranks = {0, 1}};
  const Instant step_start = Instant::here(device());
  TaskTimes times(7, run, 0, device());
  times.start();
  work();
  times.pause();
  times.resume();
  work();
  Stream beside([] {});
  Flight flight(work, device());
  flight.start(beside);
  times.exchanged(flight.wait());
  beside.drain();
  work();
  times.end();
  wait_for_device(device());
  ASSERT_TRUE(times.reached());

  const std::vector<TaskSpan> spans = times.spans(step_start);
  ASSERT_EQ(spans.size(), 4u) << "three stretches of work, and an exchange";
  double working = 0;
  int exchanges = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].task, 7);
    EXPECT_GE(spans[i].begin, i > 0 ? spans[i - 1].begin : 0);
    EXPECT_GT(spans[i].end, spans[i].begin);
    exchanges += spans[i].communication;
    if (!spans[i].communication) working += spans[i].end - spans[i].begin;
  }
  EXPECT_EQ(exchanges, 1);

  StepTimes sums;
  times.add_to(sums);
  EXPECT_GE(sums.parameters, 0);
  EXPECT_GE(sums.waiting, sums.parameters);
  EXPECT_GE(sums.compute, working) << "with the wait for the exchange";
  EXPECT_EQ(sums.reducing + sums.switching, 0);
}

TEST(TaskTimes, OfTransfersAreCommunicationOfTheirQueue) {
  const ir::Task reduce{.what = ir::Reduce{}, .queue = ir::Queue::bulk, .ranks = {0, 1}};
  const ir::Task move{.what = ir::Move{}, .queue = ir::Queue::switching, .ranks = {0, 1}};
  const Instant step_start = Instant::here(device());
  const TaskTimes of_reduce = times_of(reduce), of_move = times_of(move);
  wait_for_device(device());
  StepTimes sums;
  of_reduce.add_to(sums);
  EXPECT_GT(sums.reducing, 0);
  EXPECT_EQ(sums.switching, 0);
  of_move.add_to(sums);
  EXPECT_GT(sums.switching, 0);
  EXPECT_EQ(sums.compute + sums.waiting, 0);
  EXPECT_THAT(of_move.spans(step_start), ElementsAre(Field(&TaskSpan::communication, true)));
}

TEST(TaskTimes, AMeetingOfAllRanksIsWaiting) {
  constexpr std::chrono::milliseconds kLate{5};
  const ir::Task norm{.what = ir::Norm{}, .queue = ir::Queue::compute, .ranks = {0, 1}};
  const Instant step_start = Instant::here(device());
  TaskTimes times(7, norm, 0, device());
  times.start();
  work();
  times.begin_collective();
  std::this_thread::sleep_for(kLate);
  times.end_collective();
  times.end();
  wait_for_device(device());
  StepTimes sums;
  times.add_to(sums);
  EXPECT_GE(sums.waiting, std::chrono::duration<double>(kLate).count());
  EXPECT_EQ(sums.parameters, 0);
  EXPECT_EQ(times.spans(step_start).size(), 1u) << "it is still one task";
}

TEST(TaskTimes, OfWhatAnotherStageSendsAreThoseOfItsSender) {
  const ir::Task send{.what = ir::Send{}, .queue = ir::Queue::forward, .ranks = {0, 1}, .messages = {{0, 1, 0, {}}}};
  EXPECT_FALSE(TaskTimes(7, send, 0, device()).receives());
  EXPECT_TRUE(TaskTimes(7, send, 1, device()).receives());
  const ir::Task reduce{.what = ir::Reduce{}, .queue = ir::Queue::bulk, .ranks = {0, 1}, .messages = {{0, 1, 0, {}}}};
  EXPECT_FALSE(TaskTimes(7, reduce, 1, device()).receives());
}

TEST(TaskTimes, CommunicationIsHiddenWhileAnythingComputes) {
  const auto sums_of = [](const std::vector<TaskSpan>& spans) {
    StepTimes sums;
    add_communication(spans, sums);
    return std::pair(sums.communication, sums.hidden);
  };
  const TaskSpan first_run{1, false, 0, 4}, second_run{2, false, 6, 9};
  EXPECT_EQ(sums_of({first_run, second_run}), std::pair(0.0, 0.0));
  EXPECT_EQ(sums_of({{3, true, 1, 3}}), std::pair(2.0, 0.0));
  EXPECT_EQ(sums_of({{3, true, 3, 8}, first_run, second_run}), std::pair(5.0, 3.0));
  // Transfers at the same time count once; one may begin when another ends.
  EXPECT_EQ(sums_of({first_run, {3, true, 1, 3}, {4, true, 2, 5}, {1, true, 5, 6}, second_run}), std::pair(5.0, 3.0));
}

TEST(TaskTimes, OfADeviceAreKnownOnceItGotThere) {
  const ir::Task task{.what = ir::Update{}, .queue = ir::Queue::compute, .ranks = {0}};
  const TaskTimes times = times_of(task);
  EXPECT_EQ(times.reached(), device().is_cpu());
  wait_for_device(device());
  EXPECT_TRUE(times.reached());
}

}  // namespace
}  // namespace switchyard::runtime
