#include "layout/reshard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "replay.hpp"

namespace switchyard::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(Reshard, copies_come_from_the_receivers_host_and_evenly) {
  const Shape shape = plain({8});
  const cluster::Cluster hosts = cluster::uniform(2, 3);
  const auto all = [&](std::vector<int> ranks) {
    return expand(Mesh{{{"dp", static_cast<int>(ranks.size())}}, ranks}, replicated(1), shape);
  };
  const Rounds plan = reshard(all({0, 1, 3}), all({0, 2, 4, 5}), hosts);
  ASSERT_EQ(plan.rounds.size(), 1u);
  const Box whole_box = whole(shape.size);
  EXPECT_THAT(plan.rounds[0], ElementsAre(Msg{0, 0, 0, whole_box}, Msg{0, 2, 0, whole_box}, Msg{3, 4, 0, whole_box},
                                          Msg{3, 5, 0, whole_box}));
  EXPECT_EQ(bytes_of(plan, hosts, 4), (LinkBytes{96, 0}));
  EXPECT_EQ(bytes_of(reshard(all({0}), all({3, 0, 1}), hosts), hosts, 2), (LinkBytes{16, 16}));
}

TEST(Reshard, sums_meet_at_one_owner_and_then_spread) {
  const Shape shape = plain({4});
  const Mesh pair{{{"tp", 2}}, {0, 1}};
  const Rounds plan =
      reshard(expand(pair, {{{}}, {0}}, shape), expand(pair, replicated(1), shape), cluster::uniform(1, 2));
  const Box front{1, {0}, {2}}, back{1, {2}, {4}};
  ASSERT_EQ(plan.rounds.size(), 3u);
  EXPECT_THAT(plan.rounds[0], ElementsAre(Msg{0, 1, 0, back}, Msg{1, 0, 0, front}));
  EXPECT_THAT(plan.rounds[1], ElementsAre(Msg{0, 0, 0, front}, Msg{1, 1, 0, back}));
  EXPECT_THAT(plan.rounds[2],
              ElementsAre(Msg{0, 0, 0, front}, Msg{0, 1, 0, front}, Msg{1, 0, 0, back}, Msg{1, 1, 0, back}));
}

TEST(Reshard, to_a_sum_is_refused) {
  const Shape shape = plain({4});
  const ShardMap sum = expand(Mesh{{{"tp", 2}}, {0, 1}}, {{{}}, {0}}, shape);
  try {
    reshard(sum, sum, cluster::uniform(1, 2));
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("reshard to a value with 2 partials"));
  }
}

TEST(Reshard, a_missing_partial_is_a_bug) {
  const ShardMap from{plain({4}), 2, {{0, 0, whole(std::vector<i64>{4})}}},
      to{plain({4}), 1, {{0, 0, whole(std::vector<i64>{4})}}};
  try {
    reshard(from, to, cluster::uniform(1, 2));
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("box [0,4) of partial 1 is on no rank"));
  }
}

TEST(ReshardProperties, any_map_becomes_any_other_and_goes_back_unchanged) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const cluster::Cluster hosts = cluster::uniform(3, 4);
    const ShardMap a = random.map(shape, 12, false), b = random.map(shape, 12, false);
    const Rounds there = reshard(a, b, hosts), back = reshard(b, a, hosts);
    ASSERT_NO_THROW(verify_reshard(there, a, b));
    ASSERT_NO_THROW(verify_reshard(back, b, a));
    ASSERT_TRUE(holds_values(b, replay_copy(there, 0, a, b), 0, 1));
    ASSERT_TRUE(holds_values(a, replay_copy(back, 0, b, a), 0, 1));
  }
}

TEST(ReshardProperties, sums_are_those_of_all_partials_and_reach_every_copy) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const ShardMap from = random.map(shape, 12, true), to = random.map(shape, 12, false);
    const Rounds plan = reshard(from, to, cluster::uniform(3, 4));
    ASSERT_NO_THROW(verify_reshard(plan, from, to));
    if (from.partials == 1) continue;
    const ShardMap owners = one_owner(to);
    ASSERT_TRUE(
        holds_values(owners, replay_sum({{plan.rounds[0], plan.rounds[1]}}, 0, from, owners), 0, from.partials));
  }
}

}  // namespace
}  // namespace switchyard::layout
