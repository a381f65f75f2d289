#include "report/memory_curves.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "steps.hpp"

namespace switchyard::report {
namespace {

compiler::MemoryPeak moment(int id, i64 bytes) {
  compiler::MemoryPeak peak;
  peak.task = id;
  peak.total = peak.bytes[0] = bytes;
  return peak;
}

i64 highest(const MemoryCurve& curve) {
  i64 most = 0;
  for (const auto& bytes : curve.bytes) most = std::max(most, std::accumulate(bytes.begin(), bytes.end(), i64{0}));
  return most;
}

TEST(MemoryCurve, counts_a_task_from_its_start_and_never_goes_back_in_time) {
  const std::vector<double> starts{1, 3, 2, 4};
  const MemoryCurve curve = curve_of(7, {moment(-1, 10), moment(0, 20), moment(1, 30), moment(2, 25), moment(3, 5)},
                                     [&](int, int id) { return starts[static_cast<size_t>(id)]; });
  EXPECT_EQ(curve.ranks, std::vector<int>{7});
  EXPECT_EQ(curve.seconds, (std::vector<double>{0, 1, 3, 4}));
  std::vector<i64> totals;
  for (const auto& bytes : curve.bytes) totals.push_back(bytes[0]);
  EXPECT_EQ(totals, (std::vector<i64>{10, 20, 30, 5}));  // task 2 starts together with task 1, which needs more
}

TEST(MemoryCurve, thinned_keeps_its_peak) {
  MemoryCurve curve{.ranks = {0}, .seconds = {}, .bytes = {}};
  for (int i = 0; i < 1000; ++i) {
    curve.seconds.push_back(i);
    curve.bytes.push_back({i == 537 ? 5000 : i});
  }
  MemoryCurve same = curve;
  thin(same, 1000);
  EXPECT_EQ(same.seconds, curve.seconds);
  thin(curve, 50);
  EXPECT_EQ(curve.seconds.size(), 50u);
  EXPECT_EQ(curve.bytes.size(), 50u);
  EXPECT_EQ(highest(curve), 5000);
  EXPECT_EQ(curve.seconds.front(), 0);
}

TEST(Memory, over_time_peaks_at_the_predicted_peak_of_every_rank) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, {60, 50, 40, 30, 20, 10});
  const auto start = [&](int, int id) { return step.simulation.tasks[static_cast<size_t>(id)].begin; };
  const Memory memory = memory_of(step.program, step.plan, step.plans, start, 64);
  ASSERT_EQ(memory.predicted_peak.size(), 4u);
  size_t ranks = 0;
  i64 before = memory.predicted_peak[0];
  for (const MemoryCurve& curve : memory.curves) {
    EXPECT_LE(highest(curve), before);  // the highest peak first
    before = highest(curve);
    for (const int rank : curve.ranks) {
      ++ranks;
      const compiler::Holdings holdings(step.plans, rank);
      const compiler::MemoryPeak peak = compiler::predict_memory(step.program, step.plan, step.plans, holdings);
      EXPECT_EQ(memory.predicted_peak[static_cast<size_t>(rank)], peak.total);
      EXPECT_EQ(highest(curve), peak.total);
      EXPECT_NE(std::find(curve.bytes.begin(), curve.bytes.end(), peak.bytes), curve.bytes.end());
    }
  }
  EXPECT_EQ(ranks, 4u);
  EXPECT_EQ(memory_of(step.program, step.plan, step.plans, start, 1).curves.size(), 1u);
}

}  // namespace
}  // namespace switchyard::report
