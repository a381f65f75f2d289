#include "planner/layer_codes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

template <class Task>
void on_threads(int count, Task task) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < count; ++thread) threads.emplace_back([&task, thread] { task(thread); });
  for (std::thread& thread : threads) thread.join();
}

TEST(TimeTable, measures_each_size_once_whatever_the_number_of_threads) {
  std::atomic<int> measured = 0;
  const TimeTable table(
      [&](i64 T) {
        ++measured;
        std::this_thread::yield();
        return Spent{.compute = static_cast<double>(T)};
      },
      4);
  on_threads(4, [&](int) {
    for (i64 T = 1; T <= 4096; ++T) {
      const double seconds = table.at(T).compute;
      EXPECT_EQ(seconds, static_cast<double>(std::max<i64>(16, T))) << "linear between the sizes";
    }
  });
  EXPECT_EQ(measured, 17) << "16, 24, 32, ..., 4096";
}

TEST(LayerCodes, are_the_same_for_models_of_several_threads_as_for_one_alone) {
  for (unsigned seed = 1; seed <= cases(4u, 1u); ++seed) {
    const SmallProblem problem(seed);
    const UnitCosts& alone = problem.units;
    std::vector<std::unique_ptr<UnitCosts>> sharing;
    for (int thread = 0; thread < 4; ++thread) sharing.push_back(std::make_unique<UnitCosts>(alone.codes()));
    std::vector<std::vector<double>> seconds(sharing.size());
    std::vector<std::vector<const TimeTable*>> tables(sharing.size());
    on_threads(static_cast<int>(sharing.size()), [&](int thread) {
      const auto at = static_cast<size_t>(thread);
      for (size_t i = 0; i < problem.shapes.size(); i += 7) {
        const Shape& shape = problem.shapes[(i + at * 7) % problem.shapes.size()];
        sharing[at]->times(StageKind::middle, shape.placement.code_mesh(), shape.recompute, Pass::BW).at(300);
      }
      for (size_t i = 0; i < problem.shapes.size(); i += 7) {
        const Shape& shape = problem.shapes[i];
        tables[at].push_back(
            &sharing[at]->times(StageKind::middle, shape.placement.code_mesh(), shape.recompute, Pass::BW));
        seconds[at].push_back(tables[at].back()->at(300).total(100));
      }
    });
    const SmallProblem again(seed);
    std::vector<double> expected;
    for (size_t i = 0; i < again.shapes.size(); i += 7)
      expected.push_back(
          again.units
              .time(StageKind::middle, again.shapes[i].placement.code_mesh(), again.shapes[i].recompute, Pass::BW, 300)
              .total(100));
    for (size_t thread = 0; thread < sharing.size(); ++thread) {
      EXPECT_EQ(tables[thread], tables.front()) << "compiled once";
      EXPECT_EQ(seconds[thread], expected) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace switchyard::planner
