#include "planner/home_plans.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

// A few shapes, all candidates of all ranges as exact options.
struct Case {
  explicit Case(unsigned seed)
      : problem(seed),
        ranges{static_cast<int>(problem.model.bounds().size()), {}},
        plans(
            problem.model, ranges, problem.settings, [this] { return stop; }, counts) {
    std::shuffle(problem.shapes.begin(), problem.shapes.end(), problem.random);
    problem.shapes.resize(std::min<size_t>(problem.shapes.size(), 5));
    std::ranges::sort(problem.shapes);
    index.emplace(problem.shapes, problem.units.shares_rise());
    room.emplace(problem.model, *index, problem.settings.memory);
    ranges.candidates.resize(ranges.slots());
    for (int lo = 0; lo < ranges.levels; ++lo)
      for (int hi = lo + 1; hi <= ranges.levels; ++hi)
        if (problem.model.any({lo, hi})) {
          std::vector<std::unique_ptr<RangeQueue>> parts;
          for (const int part : {0, 1})
            parts.push_back(
                std::make_unique<RangeQueue>(problem.model, *index, *room, Range{lo, hi}, counts, Part{part, 2}));
          auto& all = ranges.candidates[ranges.slot({lo, hi})];
          all = std::make_unique<RangeCandidates>(std::move(parts), index->placements());
          all->open(std::numeric_limits<double>::max(), std::numeric_limits<size_t>::max());
          for (size_t option = 0; option < all->size(); ++option) all->time(option);
        }
    plans.open(std::vector<double>(ranges.slots(), 0));
  }
  bool fits(const Step& first, int zero, const Step& step) const {
    const auto of = [&](const Step& one) { return ranges.of(one.range)->option(one.option); };
    return problem.settings.memory == 0 ||
           of(step).memory + problem.model.home_bytes({of(first).shape.placement, zero}) <= problem.settings.memory;
  }
  // All ways to continue from a level, in every order.
  double best(Draft& draft, int level) const {
    const Step longest = draft.steps.front();
    if (level == longest.range.lo) return best_order(draft);
    double least = kEndless;
    for (int next = level + 1; next <= longest.range.lo; ++next)
      for (size_t option = 0; ranges.of({level, next}) && option < ranges.of({level, next})->size(); ++option) {
        if (!fits(longest, draft.zero, {{level, next}, option})) continue;
        draft.steps.push_back({{level, next}, option});
        least = std::min(least, best(draft, next));
        draft.steps.pop_back();
      }
    return least;
  }
  double best_order(Draft draft) const {
    double least = kEndless;
    std::ranges::sort(draft.steps, {}, [](const Step& step) { return step.range; });
    do least = std::min(least, plans.seconds(draft));
    while (std::ranges::next_permutation(draft.steps, {}, [](const Step& step) { return step.range; }).found);
    return least;
  }
  SmallProblem problem;
  std::optional<ShapeIndex> index;
  std::optional<MemoryRoom> room;
  Ranges ranges;
  Counts counts;
  bool stop = false;
  HomePlans plans;
};

TEST(HomePlans, of_a_home_are_the_best_of_all_ways_to_go_on) {
  int several = 0;
  for (unsigned seed = 1; seed <= cases(12u, 2u); ++seed) {
    Case one(seed);
    for (int lo = 0; lo < one.ranges.levels; ++lo) {
      const Range range{lo, one.ranges.levels};
      for (size_t option = 0; one.ranges.of(range) && option < std::min<size_t>(2, one.ranges.of(range)->size());
           ++option) {
        const Step first{range, option};
        const int zero = static_cast<int>(seed % 2);
        if (!one.fits(first, zero, first)) continue;
        Draft draft{{first}, zero, 0};
        const double best = one.best(draft, 0);
        const std::vector<Draft> found = one.plans.best(first, zero, std::numeric_limits<double>::max());
        ASSERT_EQ(found.empty(), best == kEndless) << "seed " << seed;
        if (found.empty()) continue;
        EXPECT_DOUBLE_EQ(found.front().seconds, best) << "seed " << seed;
        for (const Draft& plan : found) EXPECT_DOUBLE_EQ(plan.seconds, one.plans.seconds(plan));
        EXPECT_LE(one.plans.least(first, zero, 0), best * (1 + 1e-12));
        const std::vector<Draft> just = one.plans.best(first, zero, best * (1 + 1e-9));
        ASSERT_FALSE(just.empty()) << "seed " << seed << ": left out by a bound";
        EXPECT_DOUBLE_EQ(just.front().seconds, best);
        EXPECT_TRUE(one.plans.best(first, zero, best * (1 - 1e-6)).empty()) << "no plan is below the limit";
        if (found.front().steps.size() > 1) ++several;
      }
    }
  }
  EXPECT_GT(several, static_cast<int>(cases(10u, 0u)));
}

TEST(HomePlans, end_when_asked_to) {
  Case one(1);
  ASSERT_GT(one.ranges.levels, 1);
  for (int lo = 1; lo < one.ranges.levels; ++lo) {
    const Range range{lo, one.ranges.levels};
    if (!one.ranges.of(range) || one.ranges.of(range)->size() == 0) continue;
    one.stop = true;
    EXPECT_TRUE(one.plans.best({range, 0}, 1, std::numeric_limits<double>::max()).empty());
  }
}

}  // namespace
}  // namespace switchyard::planner
