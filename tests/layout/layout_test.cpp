#include "layout/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/errors.hpp"
#include "random_maps.hpp"

namespace switchyard::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Mesh kPair{{{"tp", 2}}, {0, 1}};
const Mesh kSquare{{{"dp", 2}, {"tp", 2}}, {4, 5, 6, 7}};
const Shape kKeys{{32, 64}, {{16, 1}, {}}};

Shard shard(int rank, i64 lo, i64 hi, int partial = 0) {
  Shard result{rank, partial, whole(std::vector<i64>{hi})};
  result.box.lo[0] = lo;
  return result;
}

std::vector<std::string> boxes(const ShardMap& map) {
  std::vector<std::string> result;
  for (const Shard& s : map.shards) result.push_back(fmt::format("{}:{}", s.rank, to_string(s.box)));
  return result;
}

template <class Call>
std::string bug(Call&& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Meshes, the_first_axis_is_outermost) {
  const Mesh mesh{{{"pp", 2}, {"dp", 3}, {"tp", 2}}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  EXPECT_EQ(mesh.find("dp"), 1);
  EXPECT_EQ(mesh.find("zero"), -1);
  EXPECT_EQ(mesh.coordinate(9, 0), 1);
  EXPECT_EQ(mesh.coordinate(9, 1), 1);
  EXPECT_EQ(mesh.coordinate(9, 2), 1);
  EXPECT_THAT(mesh.peers(9, {1}), ElementsAre(7, 9, 11));
  EXPECT_THAT(mesh.peers(9, {2, 0}), ElementsAre(2, 8, 3, 9));
  EXPECT_THAT(mesh.peers(9, {}), ElementsAre(9));
}

TEST(Meshes, rank_13_of_four_nested_axes_has_the_published_groups) {
  const Mesh mesh{{{"data", 2}, {"depth", 2}, {"row", 2}, {"column", 2}},
                  {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
  EXPECT_THAT(mesh.peers(13, {3}), ElementsAre(12, 13));
  EXPECT_THAT(mesh.peers(13, {2}), ElementsAre(13, 15));
  EXPECT_THAT(mesh.peers(13, {1}), ElementsAre(9, 13));
  EXPECT_THAT(mesh.peers(13, {0}), ElementsAre(5, 13));
}

TEST(Meshes, that_contradict_themselves_are_bugs) {
  EXPECT_THAT(bug([] { validate(Mesh{{{"tp", 2}}, {0}}); }), HasSubstr("2 positions for 1 ranks"));
  EXPECT_THAT(bug([] { validate(Mesh{{{"tp", 0}}, {}}); }), HasSubstr("\"tp\" has size 0"));
  EXPECT_THAT(bug([] { validate(Mesh{{{"a", 1}, {"a", 1}}, {0}}); }), HasSubstr("two axes \"a\""));
  EXPECT_THAT(bug([] { validate(Mesh{{{"a", 2}}, {3, 3}}); }), HasSubstr("repeat"));
  EXPECT_THAT(bug([] { validate(Mesh{{{"a", 1}}, {-1}}); }), HasSubstr("negative"));
  EXPECT_NO_THROW(validate(kSquare));
}

TEST(Layouts, key_weights_of_two_heads_are_cut_on_heads) {
  const Layout cut{{{0}, {}}, {}};
  EXPECT_EQ(to_string(kPair, cut), "{tp},{}");
  EXPECT_THAT(boxes(expand(kPair, cut, kKeys)), ElementsAre("0:[0,16)x[0,64)", "1:[16,32)x[0,64)"));
}

TEST(Layouts, differ_along_the_axes_that_cut_or_sum_something_else) {
  const Layout tokens{{{0, 1}, {}}, {}}, heads{{{1}, {0}}, {}}, copies{{{1}, {}}, {}}, partials{{{1}, {}}, {0}};
  const std::vector<int> first = {0}, second = {1}, both = {0, 1};
  for (const Layout& other : {heads, copies, partials}) {
    EXPECT_TRUE(differ_along(tokens, other, first));
    EXPECT_FALSE(differ_along(tokens, other, second));
    EXPECT_TRUE(differ_along(other, tokens, both));
    EXPECT_FALSE(differ_along(other, other, both));
  }
  EXPECT_TRUE(differ_along(copies, partials, first));
  EXPECT_FALSE(differ_along(tokens, heads, {}));
}

TEST(Layouts, partial_axes_number_the_partials_first_axis_first) {
  const Layout layout{{{}, {}}, {1, 0}};
  EXPECT_EQ(to_string(kSquare, layout), "{},{} partial {tp,dp}");
  const ShardMap map = expand(kSquare, layout, kKeys);
  EXPECT_EQ(map.partials, 4);
  std::vector<int> partials;
  for (const Shard& s : map.shards) partials.push_back(s.partial);
  EXPECT_THAT(partials, ElementsAre(0, 2, 1, 3));
}

TEST(Layouts, the_order_of_nested_cuts_matters) {
  const Shape rows = plain({8});
  EXPECT_THAT(boxes(expand(kSquare, {{{0, 1}}, {}}, rows)), ElementsAre("4:[0,2)", "5:[2,4)", "6:[4,6)", "7:[6,8)"));
  EXPECT_THAT(boxes(expand(kSquare, {{{1, 0}}, {}}, rows)), ElementsAre("4:[0,2)", "5:[4,6)", "6:[2,4)", "7:[6,8)"));
}

TEST(Layouts, nested_cuts_count_alignments_from_the_start_of_the_part) {
  const Shape vocabulary{{100}, {{8}}};  // 48 + 52; 48: 24 + 24; 52 in 7 alignments: 24 + 28
  EXPECT_THAT(boxes(expand(kSquare, {{{0, 1}}, {}}, vocabulary)),
              ElementsAre("4:[0,24)", "5:[24,48)", "6:[48,72)", "7:[72,100)"));
}

TEST(Layouts, ranks_beyond_the_pieces_hold_empty_boxes) {
  const Shape one{{16}, {{16}}};
  EXPECT_THAT(boxes(expand(kPair, {{{0}}, {}}, one)), ElementsAre("0:[0,0)", "1:[0,16)"));
  EXPECT_NO_THROW(validate(expand(kPair, {{{0}}, {}}, one), true));
}

TEST(Layouts, that_do_not_fit_the_mesh_are_bugs) {
  EXPECT_THAT(bug([] { expand(kPair, {{{0}}, {}}, kKeys); }), HasSubstr("layout {tp} for a tensor of 2 dims"));
  for (const Layout& twice : {Layout{{{0}, {0}}, {}}, Layout{{{0}, {}}, {0}}, Layout{{{}, {}}, {0, 0}}})
    EXPECT_THAT(bug([&] { shard_box(kPair, twice, kKeys, 0); }), HasSubstr("uses axis \"tp\" twice"));
  for (const int axis : {-1, 1}) {
    const std::string text = fmt::format("axis {} of a mesh with 1 axes", axis);
    EXPECT_EQ(bug([&] { expand(kPair, {{{axis}, {}}, {}}, kKeys); }), text);
    EXPECT_EQ(bug([&] { expand(kPair, {{{}, {}}, {axis}}, kKeys); }), text);
  }
}

TEST(ShardMaps, of_replicas_become_copies_or_partials) {
  const ShardMap a{plain({4}), 1, {shard(0, 0, 4)}}, b{plain({4}), 1, {shard(1, 0, 2), shard(2, 2, 4)}};
  EXPECT_EQ(as_copies({a, b}).partials, 1);
  EXPECT_EQ(as_copies({a, b}).shards.size(), 3u);
  const ShardMap sum = as_partials({a, ShardMap{plain({4}), 2, {shard(3, 0, 4, 0), shard(4, 0, 4, 1)}}});
  EXPECT_EQ(sum.partials, 3);
  EXPECT_EQ(sum.shards[2], shard(4, 0, 4, 2));
  EXPECT_THAT(bug([&] { as_copies({a, sum}); }), HasSubstr("copies of a value with 3 partials"));
  EXPECT_THAT(bug([&] { as_copies({a, ShardMap{plain({5}), 1, {}}}); }), HasSubstr("sizes [4] and [5]"));
  EXPECT_EQ(bug([] { as_copies({}); }), "no shard maps to join");
  EXPECT_EQ(bug([&] { one_owner(sum); }), "one owner of a value with 3 partials");
}

TEST(ShardMaps, copies_of_a_norm_weight_share_its_rows) {
  const ShardMap norm{plain({64}), 1, {shard(2, 0, 64), shard(3, 0, 64)}};
  EXPECT_THAT(boxes(one_owner(norm)), ElementsAre("2:[0,32)", "3:[32,64)"));
}

TEST(ShardMaps, a_split_tensor_is_its_own_home) {
  const ShardMap split = expand(kPair, {{{0}, {}}, {}}, Shape{{100, 64}, {{8}, {}}});
  EXPECT_EQ(one_owner(split).shards, split.shards);
}

TEST(ShardMaps, partly_overlapping_copies_share_what_they_have_in_common) {
  const ShardMap map{plain({12}), 1, {shard(0, 0, 6), shard(1, 6, 12), shard(2, 0, 4), shard(3, 4, 12)}};
  EXPECT_THAT(boxes(one_owner(map)), ElementsAre("0:[0,2)", "0:[4,5)", "1:[6,9)", "2:[2,4)", "3:[5,6)", "3:[9,12)"));
}

// Two replicas (axis 0) of two ranks that cut 7 columns: 5 rows over the replicas.
TEST(ShardMaps, expanded_rows_cut_each_block_over_further_axes_on_single_rows) {
  const Mesh mesh{{{"data", 2}, {"outer", 2}}, {4, 5, 6, 7}};
  const Shape shape{{5, 7}, {{4}, {}}};
  EXPECT_THAT(boxes(expand_rows(mesh, {{{}, {1}}, {}}, shape, {0})),
              ElementsAre("4:[0,2)x[0,3)", "5:[0,2)x[3,7)", "6:[2,5)x[0,3)", "7:[2,5)x[3,7)"));
  const ShardMap summed = expand_rows(mesh, {{{}, {}}, {0, 1}}, shape, {0});
  EXPECT_EQ(summed.partials, 2) << "the sum over replicas, a partial on each rank of axis 1";
  EXPECT_EQ(summed.shards[1], (Shard{5, 1, {2, {0, 0}, {2, 7}}}));
  validate(summed, true);
  EXPECT_THAT(boxes(expand_rows(mesh, {{{}}, {}}, plain({1}), {0})), ElementsAre("6:[0,1)", "7:[0,1)"))
      << "who has no row has no shard";
}

TEST(ShardMaps, rows_of_one_owner_that_touch_are_one_box) {
  const ShardMap map{plain({8}), 1, {shard(0, 0, 8), shard(0, 0, 4), shard(1, 6, 8)}};
  EXPECT_THAT(boxes(one_owner(map)), ElementsAre("0:[0,7)", "1:[7,8)"));
  const ShardMap twice{plain({8}), 1, {shard(0, 0, 8), shard(0, 0, 8), shard(1, 0, 8)}};
  EXPECT_THAT(boxes(one_owner(twice)), ElementsAre("0:[0,4)", "1:[4,8)"));
}

TEST(ShardMaps, with_holes_strangers_or_second_owners_are_bugs) {
  const auto complaint = [](ShardMap map, bool once) { return bug([&] { validate(map, once); }); };
  EXPECT_THAT(complaint({plain({4}), 1, {shard(0, 0, 3)}}, false), HasSubstr("box [3,4) of partial 0 is on no rank"));
  EXPECT_THAT(complaint({plain({4}), 2, {shard(0, 0, 4, 0), shard(0, 0, 2, 1)}}, false),
              HasSubstr("box [2,4) of partial 1"));
  EXPECT_THAT(complaint({plain({4}), 1, {shard(0, 0, 5)}}, false), HasSubstr("[0,5) of rank 0 lies outside [0,4)"));
  EXPECT_THAT(complaint({plain({4}), 1, {shard(0, 0, 4, 1)}}, false), HasSubstr("partial 1 of 1"));
  EXPECT_EQ(complaint({plain({4}), 1, {shard(0, 0, 4, -1)}}, false), "shard of rank 0, partial -1 of 1");
  EXPECT_EQ(complaint({plain({4}), 1, {shard(-1, 0, 4)}}, false), "shard of rank -1, partial 0 of 1");
  EXPECT_EQ(complaint({plain({4, 1}), 1, {shard(0, 0, 4)}}, false), "shard [0,4) of rank 0 lies outside [0,4)x[0,1)");
  EXPECT_THAT(complaint({plain({4}), 1, {shard(5, 0, 4), shard(7, 1, 2)}}, true),
              HasSubstr("box [1,2) is held by ranks 5 and 7"));
  EXPECT_EQ(complaint({plain({4}), 1, {shard(0, 0, 4), shard(0, 1, 2)}}, true), "box [1,2) is held by ranks 0 and 0");
  EXPECT_EQ(complaint({plain({4}), 1, {shard(5, 0, 4), shard(7, 1, 2)}}, false), "no error");
}

TEST(LayoutProperties, boxes_cover_each_partial_and_divide_as_the_mesh_says) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const Mesh mesh = random.mesh(12);
    const Layout layout = random.layout(mesh, shape, true);
    ASSERT_NO_THROW(validate(mesh));
    const ShardMap map = expand(mesh, layout, shape);
    ASSERT_NO_THROW(validate(map));
    int copies = mesh.size() / map.partials;
    for (const auto& axes : layout.split) {
      for (const int axis : axes) copies /= mesh.axes[static_cast<size_t>(axis)].size;
    }
    std::vector<int> times(static_cast<size_t>(shape.elements()) * static_cast<size_t>(map.partials));
    for (const Shard& s : map.shards) {
      each_element(s.box, shape.size,
                   [&](size_t e) { ++times[e * static_cast<size_t>(map.partials) + static_cast<size_t>(s.partial)]; });
    }
    for (const int t : times) ASSERT_EQ(t, copies);
  }
}

TEST(LayoutProperties, cuts_fall_on_alignments_of_the_part_they_cut) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const i64 fine = 1 + random.below(4);
    const Shape shape{{fine * (4 + random.below(20))}, {{fine * 2, fine}}};
    const Mesh mesh = random.mesh(12);
    for (const Shard& s : expand(mesh, random.layout(mesh, shape, false), shape).shards) {
      EXPECT_EQ(s.box.lo[0] % fine, 0);
      EXPECT_EQ(s.box.hi[0] % fine, 0);
    }
  }
}

TEST(LayoutProperties, one_owner_gives_each_element_to_one_of_its_holders_and_copies_own_even_rows) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const ShardMap map = random.map(shape, 10, false);
    const ShardMap home = one_owner(map);
    ASSERT_NO_THROW(validate(home, true));
    std::vector<std::set<int>> holders(static_cast<size_t>(shape.elements()));
    for (const Shard& s : map.shards) each_element(s.box, shape.size, [&](size_t e) { holders[e].insert(s.rank); });
    for (const Shard& s : home.shards) {
      EXPECT_FALSE(s.box.empty());
      each_element(s.box, shape.size, [&](size_t e) { EXPECT_TRUE(holders[e].contains(s.rank)); });
    }
  }
}

}  // namespace
}  // namespace switchyard::layout
