#include "layout/reshard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "replay.hpp"

namespace switchyard::layout {
namespace {

const Mesh kMesh{{{"dp", 2}, {"tp", 2}, {"one", 1}}, {0, 1, 2, 3}};
const Layout kWhole = replicated(2);

TEST(Patterns, equal_layouts_need_nothing) {
  EXPECT_EQ(classify(kMesh, kWhole, kWhole), Pattern::nothing);
  EXPECT_EQ(classify(kMesh, {{{0}, {1}}, {}}, {{{0}, {1}}, {}}), Pattern::nothing);
}

TEST(Patterns, axes_of_size_one_count_for_nothing) {
  EXPECT_EQ(classify(kMesh, kWhole, {{{2}, {}}, {}}), Pattern::nothing);
  EXPECT_EQ(classify(kMesh, {{{0, 2}, {}}, {2}}, {{{2, 0}, {}}, {}}), Pattern::nothing);
}

TEST(Patterns, new_inner_cuts_are_a_slice_and_lost_ones_an_all_gather) {
  EXPECT_EQ(collective_between(kMesh, {{{0}, {}}, {}}, {{{0, 1}, {}}, {}}), (Collective{Pattern::slice, {1}, -1, 0}));
  EXPECT_EQ(collective_between(kMesh, {{{0, 1}, {}}, {}}, {{{0}, {}}, {}}),
            (Collective{Pattern::all_gather, {1}, 0, -1}));
  EXPECT_EQ(collective_between(kMesh, {{{}, {1, 0}}, {}}, kWhole), (Collective{Pattern::all_gather, {1, 0}, 1, -1}));
  EXPECT_EQ(collective_between(kMesh, kWhole, {{{0}, {1}}, {}}), (Collective{Pattern::slice, {0, 1}, -1, -1}));
}

TEST(Patterns, losing_an_outer_cut_is_no_all_gather) {
  EXPECT_EQ(classify(kMesh, {{{0, 1}, {}}, {}}, {{{1}, {}}, {}}), Pattern::general);
  EXPECT_EQ(classify(kMesh, {{{0, 1}, {}}, {}}, {{{1, 0}, {}}, {}}), Pattern::general);
}

TEST(Patterns, partial_sums_are_reduced_to_all_or_scattered) {
  EXPECT_EQ(collective_between(kMesh, {{{}, {}}, {1}}, kWhole), (Collective{Pattern::all_reduce, {1}, -1, -1}));
  EXPECT_EQ(collective_between(kMesh, {{{}, {}}, {1}}, {{{1}, {}}, {}}),
            (Collective{Pattern::reduce_scatter, {1}, -1, 0}));
  EXPECT_EQ(collective_between(kMesh, {{{0}, {}}, {1}}, {{{0}, {1}}, {}}),
            (Collective{Pattern::reduce_scatter, {1}, -1, 1}));
  EXPECT_EQ(collective_between(kMesh, {{{}, {}}, {0, 1}}, {{{}, {}}, {0}}),
            (Collective{Pattern::all_reduce, {1}, -1, -1}));
  EXPECT_EQ(collective_between(kMesh, {{{}, {}}, {1, 0}}, {{{1, 0}, {}}, {}}),
            (Collective{Pattern::reduce_scatter, {1, 0}, -1, 0}));
  EXPECT_EQ(classify(kMesh, {{{}, {}}, {0, 1}}, {{{1}, {}}, {}}), Pattern::general) << "half scattered, half reduced";
  EXPECT_EQ(classify(kMesh, kWhole, {{{}, {}}, {1}}), Pattern::general) << "a copy does not become a partial";
}

TEST(Patterns, an_axis_that_changes_its_dim_is_an_all_to_all) {
  EXPECT_EQ(collective_between(kMesh, {{{0, 1}, {}}, {}}, {{{0}, {1}}, {}}),
            (Collective{Pattern::all_to_all, {1}, 0, 1}));
  EXPECT_EQ(classify(kMesh, {{{0, 1}, {}}, {}}, {{{1}, {0}}, {}}), Pattern::general);
  EXPECT_EQ(classify(kMesh, {{{0}, {1}}, {}}, {{{1}, {0}}, {}}), Pattern::general);
}

TEST(Patterns, the_same_layout_on_other_ranks_goes_point_to_point) {
  Mesh other = kMesh;
  other.ranks = {4, 5, 6, 7};
  const Layout cut{{{1}, {}}, {}};
  EXPECT_EQ(collective_between(kMesh, cut, other, cut).pattern, Pattern::point_to_point);
  EXPECT_EQ(collective_between(kMesh, cut, other, kWhole).pattern, Pattern::general);
  EXPECT_EQ(collective_between(kMesh, cut, kMesh, kWhole).pattern, Pattern::all_gather);
  EXPECT_EQ(collective_between(kMesh, cut, Mesh{{{"dp", 4}}, {4, 5, 6, 7}}, kWhole).pattern, Pattern::general);
  EXPECT_EQ(name_of(Pattern::point_to_point), "point_to_point");
  EXPECT_EQ(name_of(Pattern::general), "general");
}

/// The boxes of the members of `position`'s group along `axes`, in their order.
std::vector<Box> group_boxes(const Mesh& mesh, const Layout& layout, const Shape& shape, int position,
                             const std::vector<int>& axes) {
  std::vector<Box> boxes;
  for (const int peer : mesh.peers(position, axes)) boxes.push_back(shard_box(mesh, layout, shape, peer));
  return boxes;
}

/// Boxes of a group are consecutive parts of `all` in dim `dim`.
void expect_consecutive(const std::vector<Box>& parts, const Box& all, int dim) {
  const auto d = static_cast<size_t>(dim);
  i64 at = all.lo[d];
  for (const Box& part : parts) {
    EXPECT_EQ(part.lo[d], at);
    at = part.hi[d];
    EXPECT_TRUE(all.contains(part));
  }
  EXPECT_EQ(at, all.hi[d]);
}

TEST(PatternProperties, members_of_a_group_hold_consecutive_parts_of_the_groups_box) {
  int found = 0;
  for (unsigned seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const Mesh mesh = random.mesh(12);
    const Layout from = random.layout(mesh, shape, true), to = random.layout(mesh, shape, true);
    const Collective c = collective_between(mesh, from, to);
    for (int p = 0; p < mesh.size(); ++p) {
      const Box before = shard_box(mesh, from, shape, p), after = shard_box(mesh, to, shape, p);
      if (c.pattern == Pattern::nothing || c.pattern == Pattern::all_reduce) {
        EXPECT_EQ(before, after);
      }
      if (c.pattern == Pattern::slice || c.pattern == Pattern::reduce_scatter) {
        EXPECT_TRUE(before.contains(after));
      }
      if (c.pattern == Pattern::all_gather && c.dim_from >= 0) {
        expect_consecutive(group_boxes(mesh, from, shape, p, c.axes), after, c.dim_from);
        ++found;
      }
      if (c.pattern == Pattern::all_to_all && !before.empty() && !after.empty()) {
        Box all = before;  // the group's box: its part of dim_from is what all its members hold after the exchange
        all.lo[static_cast<size_t>(c.dim_from)] = after.lo[static_cast<size_t>(c.dim_from)];
        all.hi[static_cast<size_t>(c.dim_from)] = after.hi[static_cast<size_t>(c.dim_from)];
        expect_consecutive(group_boxes(mesh, from, shape, p, c.axes), all, c.dim_from);
        expect_consecutive(group_boxes(mesh, to, shape, p, c.axes), all, c.dim_to);
        ++found;
      }
    }
  }
  EXPECT_GT(found, 500);
}

}  // namespace
}  // namespace switchyard::layout
