#include "planner/range_queue.hpp"

#include <gtest/gtest.h>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

struct Case {
  explicit Case(unsigned seed) : problem(seed), range{0, static_cast<int>(problem.model.bounds().size())} {}
  RangeQueue queue() { return {problem.model, problem.shapes, range, problem.settings.memory, counts}; }
  i64 candidates() const { return static_cast<i64>(problem.shapes.size() * capacities(problem.model, range).size()); }
  // Of all candidates that fit with home on them.
  double quickest() {
    double least = kEndless;
    for (const Shape& shape : problem.shapes)
      for (const i64 capacity : capacities(problem.model, range))
        if (const i64 memory = problem.model.need(shape, capacity, range).total() + problem.model.home_bytes(shape.placement);
            problem.settings.memory == 0 || memory <= problem.settings.memory)
          least = std::min(least, problem.model.seconds(shape, capacity, range));
    return least;
  }
  SmallProblem problem;
  Range range;
  Counts counts;
};

TEST(RangeQueue, looks_at_entries_in_order_of_their_values_down_to_the_quickest) {
  int fits = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Case one(seed);
    RangeQueue queue = one.queue();
    double least = 0;
    while (queue.least() < kEndless) {
      ASSERT_GE(queue.least(), least) << "seed " << seed;
      least = queue.least();
      const size_t known = queue.timed().size();
      queue.refine();
      if (queue.timed().size() > known) { EXPECT_GE(queue.timed().back().seconds * (1 + 1e-12), least) << "seed " << seed; }
    }
    const double quickest = one.quickest();
    EXPECT_EQ(queue.least_of_all(), quickest) << "seed " << seed;
    EXPECT_EQ(queue.least_with([](const Placement&) { return 0.0; }), quickest) << "seed " << seed;
    const Counts& c = one.counts;
    queue.count_rest();
    EXPECT_EQ(c.rough + c.bound, 0) << "nothing waits";
    EXPECT_EQ(c.candidates, one.candidates());
    EXPECT_EQ(c.memory + c.dominated + c.timed, c.candidates) << "seed " << seed;
    EXPECT_EQ(static_cast<size_t>(c.timed), queue.timed().size());
    if (quickest < kEndless) ++fits;
  }
  EXPECT_GT(fits, 10);
}

TEST(RangeQueue, counts_what_was_never_looked_at) {
  Case one(3);
  const RangeQueue fresh = one.queue();
  fresh.count_rest();
  EXPECT_EQ(one.counts.rough, one.candidates());
  Case other(3);
  RangeQueue looked = other.queue();
  while (looked.timed().empty()) looked.refine();
  looked.count_rest();
  const Counts& c = other.counts;
  EXPECT_EQ(c.rough + c.memory + c.bound + c.dominated + c.timed, other.candidates());
  EXPECT_EQ(c.timed, 1);
  EXPECT_GT(c.rough + c.bound, 0);
}

TEST(RangeQueue, extras_of_placements_are_added_to_their_entries) {
  Case one(3);
  RangeQueue queue = one.queue();
  while (queue.least() < kEndless) queue.refine();
  const auto extra = [](const Placement& placement) { return placement.pp > 1 ? 1e6 : 1e3; };
  double expected = kEndless;
  for (const Timed& timed : queue.timed()) expected = std::min(expected, timed.seconds + extra(timed.shape.placement));
  EXPECT_DOUBLE_EQ(queue.least_with(extra), expected);
  EXPECT_GT(expected, queue.least_of_all());
}

}  // namespace
}  // namespace switchyard::planner
