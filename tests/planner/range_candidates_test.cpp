#include "planner/range_candidates.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

// The parts of a range have all candidates of a single queue, each once.
TEST(RangeCandidates, of_all_parts_are_those_of_one_queue) {
  size_t options = 0, parts_with_some = 0;
  for (unsigned seed = 1; seed <= cases(20u, 2u); ++seed) {
    SmallProblem problem(seed);
    const ShapeIndex index(problem.shapes, problem.units.shares_rise());
    MemoryRoom room(problem.model, index, problem.settings.memory);
    const Range range{0, static_cast<int>(problem.model.bounds().size())};
    Counts alone, together;
    RangeQueue queue(problem.model, index, room, range, alone);
    std::vector<std::unique_ptr<RangeQueue>> parts;
    for (int part = 0; part < RangeCandidates::kParts; ++part)
      parts.push_back(std::make_unique<RangeQueue>(problem.model, index, room, range, together,
                                                   Part{part, RangeCandidates::kParts}));
    RangeCandidates candidates(std::move(parts), index.placements());
    EXPECT_EQ(together.candidates, alone.candidates);
    EXPECT_EQ(candidates.least(), queue.least());
    EXPECT_EQ(candidates.size(), 0u);
    constexpr double kMost = std::numeric_limits<double>::max();
    queue.open(kMost);
    EXPECT_TRUE(candidates.open(kMost, std::numeric_limits<size_t>::max()));
    for (size_t i = 0; i < queue.options().size(); ++i) queue.time(i);
    for (size_t i = 0; i < candidates.size(); ++i) candidates.time(i);
    ASSERT_EQ(candidates.size(), queue.options().size()) << "seed " << seed;
    EXPECT_EQ(candidates.timed(), queue.timed());
    std::map<std::pair<Shape, i64>, std::tuple<double, i64, int>> expected;
    for (const Option& one : queue.options())
      expected[{one.shape, one.capacity}] = {one.seconds, one.memory, one.placement};
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Option& one = candidates.option(i);
      EXPECT_LT(one.placement, candidates.placements());
      EXPECT_EQ(expected.at({one.shape, one.capacity}), std::tuple(one.seconds, one.memory, one.placement));
      expected.erase({one.shape, one.capacity});
    }
    EXPECT_TRUE(expected.empty()) << "seed " << seed;
    EXPECT_EQ(candidates.quickest(), queue.quickest());
    EXPECT_EQ(candidates.least_of_all(), queue.least_of_all());
    options += candidates.size();
    for (size_t part = 0; part < RangeCandidates::kParts; ++part)
      parts_with_some += !candidates.part(part).options().empty();
    queue.count_rest();
    candidates.count_rest();
    EXPECT_EQ(together.memory, alone.memory);
    EXPECT_EQ(together.dominated, alone.dominated);
  }
  EXPECT_GT(options, cases(500u, 0u));
  EXPECT_GT(parts_with_some, cases(40u, 0u));
}

}  // namespace
}  // namespace switchyard::planner
