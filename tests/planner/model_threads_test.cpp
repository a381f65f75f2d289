#include "planner/model_threads.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

TEST(ModelThreads, a_model_is_on_one_thread_at_a_time_and_none_is_left_out) {
  const SmallProblem first(1), second(1), third(1);
  ModelThreads threads({&first.model, &second.model, &third.model}, 2);
  ASSERT_EQ(threads.count(), 3u);
  EXPECT_EQ(&threads.model(0), &first.model);
  EXPECT_EQ(&threads.model(2), &third.model);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  for (int round = 0; round < 200; ++round) {
    std::array<std::atomic<int>, 3> calls{}, running{};
    threads.run([&](size_t model) {
      EXPECT_EQ(++running[model], 1);
      ++calls[model];
      {
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      --running[model];
    });
    for (const std::atomic<int>& of_model : calls) ASSERT_EQ(of_model, 1) << "round " << round;
  }
  EXPECT_LE(ids.size(), 2u);
}

TEST(ModelThreads, work_side_by_side) {
  const SmallProblem first(1), second(1);
  ModelThreads threads({&first.model, &second.model}, 2);
  std::barrier both(2);  // which none passes alone
  threads.run([&](size_t) { both.arrive_and_wait(); });
}

TEST(ModelThreads, throw_what_a_task_throws_and_go_on) {
  const SmallProblem first(1), second(1);
  ModelThreads threads({&first.model, &second.model}, 2);
  for (const size_t fails : {0u, 1u})
    EXPECT_THROW(threads.run([&](size_t model) {
      if (model == fails) throw std::runtime_error("no");
    }),
                 std::runtime_error);
  std::atomic<int> calls = 0;
  threads.run([&](size_t) { ++calls; });
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace switchyard::planner
