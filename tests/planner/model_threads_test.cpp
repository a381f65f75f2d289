#include "planner/model_threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

TEST(ModelThreads, each_thread_has_its_model_in_every_round) {
  const SmallProblem first(1), second(1), third(1);
  const std::vector<const CostModel*> others{&second.model, &third.model};
  ModelThreads threads(first.model, others);
  EXPECT_EQ(&threads.model(0), &first.model);
  ASSERT_EQ(threads.count(), 3u);
  std::vector<std::set<std::thread::id>> ids(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<const CostModel*> models(3);
    std::atomic<int> calls = 0;
    threads.run([&](size_t thread) {
      ids[thread].insert(std::this_thread::get_id());
      models[thread] = &threads.model(thread);
      ++calls;
    });
    ASSERT_EQ(calls, 3);
    ASSERT_EQ(models, (std::vector<const CostModel*>{&first.model, &second.model, &third.model}));
  }
  EXPECT_EQ(ids[0], std::set{std::this_thread::get_id()});
  for (const std::set<std::thread::id>& of_thread : ids) EXPECT_EQ(of_thread.size(), 1u);
}

TEST(ModelThreads, throw_what_a_task_throws_and_go_on) {
  const SmallProblem first(1), second(1);
  const std::vector<const CostModel*> others{&second.model};
  ModelThreads threads(first.model, others);
  for (const size_t fails : {0u, 1u})
    EXPECT_THROW(threads.run([&](size_t thread) {
      if (thread == fails) throw std::runtime_error("no");
    }),
                 std::runtime_error);
  std::atomic<int> calls = 0;
  threads.run([&](size_t) { ++calls; });
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace switchyard::planner
