#include "layout/shape.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "../message_of.hpp"
#include "base/errors.hpp"

namespace switchyard::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Box box(std::vector<i64> lo, std::vector<i64> hi) {
  Box result = whole(hi);
  std::copy(lo.begin(), lo.end(), result.lo.begin());
  return result;
}

std::vector<i64> sizes(i64 n, std::vector<i64> alignments, i64 parts) {
  std::vector<i64> result;
  for (i64 part = 0; part < parts; ++part)
    result.push_back(cut_start(n, alignments, part + 1, parts) - cut_start(n, alignments, part, parts));
  return result;
}

TEST(Cut, a_hundred_rows_in_alignments_of_eight_split_as_48_and_52) {
  EXPECT_THAT(sizes(100, {8}, 2), ElementsAre(48, 52));
}
TEST(Cut, seven_rows_over_four_parts_differ_by_one_at_most) { EXPECT_THAT(sizes(7, {}, 4), ElementsAre(1, 2, 2, 2)); }
TEST(Cut, the_coarsest_alignment_with_enough_pieces_is_taken) {
  EXPECT_THAT(sizes(32, {16, 1}, 2), ElementsAre(16, 16));
  EXPECT_THAT(sizes(32, {16, 1}, 4), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(sizes(48, {16, 4, 1}, 5), ElementsAre(8, 8, 12, 8, 12));
  EXPECT_THAT(sizes(12, {8, 4}, 2), ElementsAre(8, 4)) << "exactly enough";
}
TEST(Cut, more_parts_than_the_finest_alignment_has_pieces_leaves_some_empty) {
  EXPECT_THAT(sizes(32, {16}, 4), ElementsAre(0, 16, 0, 16));
}
TEST(Cut, nothing_is_cut_into_nothing) { EXPECT_THAT(sizes(0, {8}, 3), ElementsAre(0, 0, 0)); }
TEST(Cut, a_part_out_of_range_is_a_bug) {
  for (const auto& [n, part, parts] :
       {std::tuple<i64, i64, i64>{8, 3, 2}, {8, -1, 2}, {8, 0, 0}, {8, 0, -1}, {-1, 0, 2}})
    EXPECT_EQ(message_of<InternalError>([&, n = n, part = part, parts = parts] { cut_start(n, {}, part, parts); }),
              fmt::format("part {} of {} of {} elements", part, parts, n));
  for (const i64 alignment : {0, -8})
    EXPECT_EQ(message_of<InternalError>([&] { cut_start(8, std::vector<i64>{alignment}, 0, 1); }),
              fmt::format("alignment {} of a cut", alignment));
}

TEST(Cut, starts_rise_from_0_to_n_on_multiples_of_an_alignment) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const i64 n = static_cast<i64>(random() % 200), parts = 1 + static_cast<i64>(random() % 20),
              g = 1 + static_cast<i64>(random() % 9);
    const std::vector<i64> alignments{g * 4, g};
    EXPECT_EQ(cut_start(n, alignments, 0, parts), 0);
    EXPECT_EQ(cut_start(n, alignments, parts, parts), n);
    for (i64 part = 0; part < parts; ++part) {
      const i64 start = cut_start(n, alignments, part, parts);
      EXPECT_LE(start, cut_start(n, alignments, part + 1, parts));
      EXPECT_TRUE(start % g == 0 || start == n) << n << " in " << parts << " by " << g;
    }
  }
}

TEST(Boxes, print_as_half_open_ranges) { EXPECT_EQ(to_string(box({0, 3}, {16, 64})), "[0,16)x[3,64)"); }

TEST(Boxes, count_their_elements) {
  EXPECT_EQ(box({1, 2, 3}, {3, 5, 7}).elements(), 24);
  EXPECT_TRUE(box({3}, {3}).empty());
  EXPECT_EQ(Box{}.elements(), 0);
}

TEST(Boxes, contain_parts_and_empty_boxes) {
  EXPECT_TRUE(box({0, 0}, {4, 4}).contains(box({1, 0}, {4, 2})));
  EXPECT_FALSE(box({0, 0}, {4, 4}).contains(box({1, 0}, {5, 2})));
  EXPECT_TRUE(box({0, 0}, {4, 4}).contains(box({9, 9}, {9, 9})));
}

TEST(Boxes, that_only_touch_have_nothing_in_common) {
  EXPECT_TRUE(intersect(box({0}, {4}), box({4}, {8})).empty());
  EXPECT_EQ(intersect(box({0, 2}, {4, 8}), box({3, 0}, {9, 5})), box({3, 2}, {4, 5}));
  EXPECT_THROW(intersect(box({0}, {4}), box({0, 0}, {4, 4})), InternalError);
}

TEST(Boxes, subtracting_from_nothing_leaves_nothing) {
  EXPECT_TRUE(subtract(box({1, 1}, {1, 4}), box({0, 0}, {2, 2})).empty());
}

TEST(Boxes, subtracting_leaves_disjoint_boxes_of_the_other_elements) {
  std::mt19937 random(11);
  const auto draw = [&] {
    Box b = whole(std::vector<i64>{5, 4, 3});
    for (size_t d = 0; d < 3; ++d) {
      b.lo[d] = static_cast<i64>(random()) % (b.hi[d] + 1);
      b.hi[d] = b.lo[d] + static_cast<i64>(random()) % (b.hi[d] - b.lo[d] + 1);
    }
    return b;
  };
  const auto holds = [](const Box& b, i64 i, i64 j, i64 k) {
    return i >= b.lo[0] && i < b.hi[0] && j >= b.lo[1] && j < b.hi[1] && k >= b.lo[2] && k < b.hi[2];
  };
  for (int round = 0; round < 1000; ++round) {
    const Box a = draw(), b = draw();
    const std::vector<Box> rest = subtract(a, b);
    EXPECT_LE(rest.size(), 6u);
    for (i64 i = 0; i < 5; ++i) {
      for (i64 j = 0; j < 4; ++j) {
        for (i64 k = 0; k < 3; ++k) {
          const auto times = std::count_if(rest.begin(), rest.end(), [&](const Box& r) { return holds(r, i, j, k); });
          ASSERT_EQ(times, holds(a, i, j, k) && !holds(b, i, j, k) ? 1 : 0)
              << to_string(a) << " without " << to_string(b);
        }
      }
    }
  }
}

TEST(Shapes, of_more_than_three_dims_are_refused) {
  try {
    whole(std::vector<i64>{1, 2, 3, 4});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a tensor of 4 dims; at most 3"));
  }
}

TEST(Shapes, without_alignments_have_an_empty_list_per_dim) {
  EXPECT_EQ(plain({4, 5}).alignment.size(), 2u);
  EXPECT_EQ(plain({4, 5}).elements(), 20);
}

}  // namespace
}  // namespace switchyard::layout
