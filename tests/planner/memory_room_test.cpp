#include "planner/memory_room.hpp"

#include <gtest/gtest.h>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

// For every code, capacity and range: none that is left out has a shape that fits by the closer bound, and the closer
// bound leaves little that could have been left out.
TEST(MemoryRoom, leaves_out_no_capacity_with_which_a_shape_fits) {
  i64 left_out = 0, fit = 0, unseen = 0;
  for (unsigned seed = 1; seed <= cases(40u, 4u); ++seed) {
    SmallProblem problem(seed);
    const CostModel& model = problem.model;
    const ShapeIndex index(problem.shapes, problem.units.shares_rise());
    MemoryRoom room(model, index, problem.settings.memory);
    const int levels = static_cast<int>(model.bounds().size());
    for (int lo = 0; lo < levels; ++lo)
      for (int hi = lo + 1; hi <= levels; ++hi)
        for (int code = 0; code < index.codes(); ++code) {
          const Range range{lo, hi};
          const i64 largest = room.largest_capacity(code, range);
          for (const i64 capacity : capacities(model, range)) {
            const bool fits =
                !room.limited() || std::ranges::any_of(index.code(code).members, [&](const ShapeIndex::Member& member) {
                  Shape shape = index.shape(member.shape);
                  shape.placement = leanest(shape.placement);
                  return model.least_need(shape, capacity, range).total() <= room.bytes(shape.placement, range);
                });
            if (capacity > largest) {
              ASSERT_FALSE(fits) << seed << ": code " << code << ", " << capacity << " tokens, range " << lo << ' '
                                 << hi;
            }
            ++(capacity > largest ? left_out : fits ? fit : unseen);
          }
        }
  }
  EXPECT_GT(left_out, 0);
  EXPECT_GT(fit, 0);
  EXPECT_LT(unseen, left_out);
}

TEST(MemoryRoom, without_a_limit_all_fits) {
  SmallProblem problem(1);
  const ShapeIndex index(problem.shapes, problem.units.shares_rise());
  MemoryRoom room(problem.model, index, 0);
  const Range range{0, static_cast<int>(problem.model.bounds().size())};
  EXPECT_FALSE(room.limited());
  EXPECT_GE(room.largest_capacity(0, range), capacities(problem.model, range).back());
}

// What a stage takes is kept by sizes of its micro-batches: no more tokens take less.
TEST(MemoryRoom, one_micro_batch_of_more_tokens_takes_no_less) {
  for (unsigned seed = 1; seed <= cases(40u, 4u); ++seed) {
    SmallProblem problem(seed);
    const Range range{0, 1};
    for (const Shape& shape : problem.shapes) {
      i64 before = 0;
      for (const i64 capacity : capacities(problem.model, range)) {
        const i64 bytes = problem.model.need_of_one(shape, capacity, range).total();
        ASSERT_GE(bytes, before) << seed << ": " << to_string(shape) << ", " << capacity << " tokens";
        EXPECT_LE(bytes, problem.model.least_need(shape, capacity, range).total());
        before = bytes;
      }
    }
  }
}

}  // namespace
}  // namespace switchyard::planner
