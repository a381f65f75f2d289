#include "planner/range_queue.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

struct Case {
  explicit Case(unsigned seed) : problem(seed), range{0, static_cast<int>(problem.model.bounds().size())} {}
  RangeQueue queue() { return {problem.model, index, room, range, counts}; }
  i64 candidates() const { return static_cast<i64>(problem.shapes.size() * capacities(problem.model, range).size()); }
  // All candidates that fit together with home, with what moves before and after them: they have all documents.
  double quickest() {
    double least = kEndless;
    for (const Shape& whole : problem.shapes)
      for (const i64 capacity : capacities(problem.model, range)) {
        const Shape shape = cut_to_fit(problem.model, whole, capacity, range, problem.settings.memory);
        if (const i64 memory =
                problem.model.need(shape, capacity, range).total() + problem.model.home_bytes({shape.placement});
            problem.settings.memory == 0 || memory <= problem.settings.memory)
          least = std::min(least, problem.model.seconds(shape, capacity, range) +
                                      problem.transfers.beyond_one_phase(
                                          shape.placement, problem.model.last_backward(shape.placement, range)));
      }
    return least;
  }
  SmallProblem problem;
  ShapeIndex index{problem.shapes, problem.units.shares_rise()};
  MemoryRoom room{problem.model, index, problem.settings.memory};
  Range range;
  Counts counts;
};

TEST(RangeQueue, looks_at_entries_in_order_of_their_values_down_to_the_quickest) {
  int fits = 0;
  for (unsigned seed = 1; seed <= cases(20u, 3u); ++seed) {
    Case one(seed);
    RangeQueue queue = one.queue();
    double least = 0;
    while (queue.least() < kEndless) {
      ASSERT_GE(queue.least(), least) << "seed " << seed;
      least = queue.least();
      const size_t known = queue.options().size();
      queue.refine();
      if (queue.options().size() > known) {
        EXPECT_GE(queue.options().back().least() * (1 + 1e-12), least) << "seed " << seed;
      }
    }
    const double quickest = one.quickest();
    EXPECT_EQ(queue.least_of_all(), quickest) << "seed " << seed;
    const Counts& c = one.counts;
    queue.count_rest();
    EXPECT_EQ(c.rough + c.bound, 0) << "nothing waits";
    EXPECT_EQ(c.candidates, one.candidates());
    EXPECT_EQ(c.memory + c.dominated + c.timed, c.candidates) << "seed " << seed;
    EXPECT_EQ(c.timed,
              std::ranges::count_if(queue.options(), [](const Option& option) { return option.seconds < kEndless; }));
    if (quickest < kEndless) ++fits;
  }
  EXPECT_GT(fits, static_cast<int>(cases(10u, 0u)));
}

TEST(RangeQueue, counts_what_was_never_looked_at) {
  Case one(3);
  const RangeQueue fresh = one.queue();
  fresh.count_rest();
  EXPECT_EQ(one.counts.rough, one.candidates());
  Case other(3);
  RangeQueue looked = other.queue();
  while (looked.options().empty()) looked.refine();
  looked.count_rest();
  const Counts& c = other.counts;
  EXPECT_EQ(c.rough + c.memory + c.bound + c.dominated + c.timed, other.candidates());
  EXPECT_EQ(c.timed, 1);
  EXPECT_GT(c.rough + c.bound, 0);
}

TEST(RangeQueue, a_stopped_search_excludes_only_what_its_bounds_exclude) {
  Case one(3);
  RangeQueue queue = one.queue();
  while (queue.options().empty()) queue.refine();
  const Counts before = one.counts;
  const auto sum = [](const Counts& c) { return c.rough + c.memory + c.bound + c.dominated + c.timed + c.unexamined; };
  queue.count_rest(queue.least());
  EXPECT_EQ(one.counts.unexamined, 0) << "no bound is below the least one";
  EXPECT_EQ(sum(one.counts), one.candidates());
  one.counts = before;
  queue.count_rest(std::nextafter(queue.least(), kEndless));
  EXPECT_GT(one.counts.unexamined, 0);
  EXPECT_GT(one.counts.rough + one.counts.bound, 0);
  EXPECT_EQ(sum(one.counts), one.candidates());
  EXPECT_EQ(one.counts.pruned(), one.candidates() - one.counts.timed - one.counts.unexamined);
  one.counts = before;
  queue.count_rest(kEndless);
  EXPECT_EQ(one.counts.rough + one.counts.bound, 0) << "bounds exclude nothing";
  EXPECT_EQ(sum(one.counts), one.candidates());
}

TEST(RangeQueue, opened_options_are_bounds_until_they_are_timed) {
  for (unsigned seed = 1; seed <= cases(5u, 2u); ++seed) {
    Case one(seed);
    RangeQueue queue = one.queue();
    queue.refine();
    const double most = 1.1 * one.quickest();
    queue.open(most);
    EXPECT_GT(queue.least(), most);
    EXPECT_EQ(one.counts.timed, 0);
    for (size_t i = 0; i < queue.options().size(); ++i) {
      const Option before = queue.options()[i];
      EXPECT_FALSE(before.exact);
      EXPECT_LE(before.least(), most);
      queue.time(i);
      const Option& after = queue.options()[i];
      EXPECT_TRUE(after.exact);
      EXPECT_GE(after.seconds * (1 + 1e-12), before.seconds);
      EXPECT_GE(after.memory, before.memory);
    }
    EXPECT_EQ(queue.least_of_all(), one.quickest()) << "seed " << seed;
  }
}

TEST(RangeQueue, what_was_set_aside_comes_back_where_it_may_be_the_quickest_of_its_placement) {
  size_t opened = 0, came_back = 0, fit = 0;
  for (unsigned seed = 1; seed <= cases(20u, 2u); ++seed) {
    Case one(seed);
    RangeQueue queue = one.queue();
    queue.open(std::numeric_limits<double>::max());
    const size_t before = queue.options().size();
    std::map<Placement, double> found;
    for (size_t i = 0; i < queue.options().size(); ++i) {
      queue.time(i);
      const Option& option = queue.options()[i];
      double& least = found.try_emplace(option.shape.placement, kEndless).first->second;
      least = std::min(least, option.seconds);
    }
    opened += before;
    came_back += queue.options().size() - before;
    for (const Shape& shape : one.problem.shapes)
      for (const i64 capacity : capacities(one.problem.model, one.range)) {
        const i64 memory = one.problem.model.need(shape, capacity, one.range).total() +
                           one.problem.model.home_bytes({shape.placement});
        if (one.problem.settings.memory > 0 && memory > one.problem.settings.memory) continue;
        ++fit;
        ASSERT_TRUE(found.contains(shape.placement)) << "seed " << seed;
        EXPECT_LE(found[shape.placement], one.problem.model.seconds(shape, capacity, one.range))
            << "seed " << seed << ", " << to_string(shape);
      }
  }
  EXPECT_LT(opened + came_back, fit) << "some are never looked at";
  EXPECT_GT(came_back, 0u);
}

}  // namespace
}  // namespace switchyard::planner
