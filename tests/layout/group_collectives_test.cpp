#include "layout/group_collectives.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "layout/exchange.hpp"
#include "random_maps.hpp"

namespace switchyard::layout {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Ranks 10, 11, ... so that they are no positions.
Mesh mesh_of(std::vector<Axis> axes) {
  Mesh mesh{std::move(axes), {}};
  int size = 1;
  for (const Axis& axis : mesh.axes) size *= axis.size;
  for (int position = 0; position < size; ++position) mesh.ranks.push_back(10 + position);
  return mesh;
}

std::vector<GroupCollective> between(const Mesh& mesh, const Layout& from, const Layout& to, const Shape& shape) {
  return group_collectives(expand(mesh, from, shape), expand(mesh, to, shape));
}

// A call for each group, and its ranks.
std::vector<std::pair<GroupCall, std::vector<int>>> groups(const std::vector<GroupCollective>& collectives) {
  std::vector<std::pair<GroupCall, std::vector<int>>> list;
  for (const GroupCollective& c : collectives) list.emplace_back(c.call, c.ranks);
  return list;
}

const Mesh kLine = mesh_of({{"tp", 4}});
const Shape kEven = plain({8, 12});
const Layout kRows{{{0}, {}}, {}}, kColumns{{{}, {0}}, {}}, kWhole = replicated(2), kSum{{{}, {}}, {0}};
constexpr auto kGather = GroupCall::all_gather, kScatter = GroupCall::reduce_scatter, kReduce = GroupCall::all_reduce;

TEST(GroupCollectives, AreFoundBetweenTheLayoutsOfOneAxisAlsoWhereTheCutIsNotTheOutermost) {
  const std::vector<int> all{10, 11, 12, 13};
  for (const Layout& cut : {kRows, kColumns}) {
    EXPECT_THAT(groups(between(kLine, cut, kWhole, kEven)), ElementsAre(std::pair(kGather, all)));
    EXPECT_THAT(groups(between(kLine, kSum, cut, kEven)), ElementsAre(std::pair(kScatter, all)));
    const GroupCollective gather = between(kLine, cut, kWhole, kEven)[0];
    for (int position = 0; position < 4; ++position)
      EXPECT_EQ(gather.pieces[static_cast<size_t>(position)], shard_box(kLine, cut, kEven, position));
  }
  EXPECT_THAT(groups(between(kLine, kSum, kWhole, kEven)), ElementsAre(std::pair(kReduce, all)));
}

TEST(GroupCollectives, GroupsAreTheRanksAlongTheAxesThatExchange) {
  const Mesh grid = mesh_of({{"outer", 2}, {"inner", 3}});
  const Shape shape = plain({6, 6});
  const Layout rows_of_inner{{{1}, {}}, {}}, rows_of_outer{{{0}, {}}, {}}, both{{{0}, {1}}, {}};
  EXPECT_THAT(groups(between(grid, rows_of_inner, replicated(2), shape)),
              ElementsAre(std::pair(kGather, std::vector{10, 11, 12}), std::pair(kGather, std::vector{13, 14, 15})));
  EXPECT_THAT(groups(between(grid, rows_of_outer, replicated(2), shape)),
              ElementsAre(std::pair(kGather, std::vector{10, 13}), std::pair(kGather, std::vector{11, 14}),
                          std::pair(kGather, std::vector{12, 15})));
  EXPECT_THAT(groups(between(grid, both, rows_of_outer, shape)),
              ElementsAre(std::pair(kGather, std::vector{10, 11, 12}), std::pair(kGather, std::vector{13, 14, 15})));
  const Layout sum_of_inner{{{0}, {}}, {1}};
  EXPECT_THAT(groups(between(grid, sum_of_inner, both, shape)),
              ElementsAre(std::pair(kScatter, std::vector{10, 11, 12}), std::pair(kScatter, std::vector{13, 14, 15})));
}

// Cut along two dims, the pieces of a group are in the order of their corners, not of ranks.
TEST(GroupCollectives, PiecesAreInTheOrderOfTheirCorners) {
  const Mesh grid = mesh_of({{"a", 2}, {"b", 2}});
  const Layout inverted{{{1}, {0}}, {}};
  const auto found = between(grid, inverted, replicated(2), plain({4, 4}));
  EXPECT_THAT(groups(found), ElementsAre(std::pair(kGather, std::vector{10, 12, 11, 13})));
}

TEST(GroupCollectives, UnequalPiecesAllToAllPartialsThatStayAndNothingToDoAreNone) {
  EXPECT_THAT(between(kLine, kRows, kWhole, plain({9, 12})), IsEmpty());
  EXPECT_THAT(between(kLine, kSum, kRows, plain({3, 12})), IsEmpty()) << "an empty part";
  EXPECT_THAT(between(kLine, kRows, kColumns, kEven), IsEmpty());
  EXPECT_THAT(between(kLine, kWhole, kSum, kEven), IsEmpty());
  EXPECT_THAT(between(kLine, kRows, kRows, kEven), IsEmpty());
  EXPECT_THAT(between(kLine, kWhole, kRows, kEven), IsEmpty());
  const Mesh grid = mesh_of({{"a", 2}, {"b", 2}});
  const Layout both{{{}, {}}, {0, 1}}, one{{{}, {}}, {1}};
  EXPECT_THAT(between(grid, both, one, kEven), IsEmpty());
}

// Maps of a vector: each shard is a rank, the first and the end of its elements, and its partial.
using VectorShard = std::array<int, 4>;
ShardMap vector_map(i64 elements, const std::vector<VectorShard>& shards, int partials = 1) {
  ShardMap map{plain({elements}), partials, {}};
  for (const auto& [rank, lo, hi, partial] : shards) map.shards.push_back({rank, partial, {1, {lo}, {hi}}});
  return map;
}

// Rank 9 only gives what is missing, so that the pieces of the others would be as many elements as the whole.
TEST(GroupCollectives, PiecesThatDoNotTileTheWholeAreNone) {
  const ShardMap whole = vector_map(8, {{0, 0, 8}, {1, 0, 8}});
  EXPECT_THAT(groups(group_collectives(vector_map(8, {{0, 0, 4}, {1, 4, 8}}), whole)),
              ElementsAre(std::pair(kGather, std::vector{0, 1})));
  EXPECT_THAT(group_collectives(vector_map(8, {{0, 0, 4}, {1, 2, 6}, {9, 6, 8}}), whole), IsEmpty()) << "overlap";
  EXPECT_THAT(group_collectives(vector_map(8, {{0, 0, 4}, {1, 4, 6}, {9, 6, 8}}), whole), IsEmpty()) << "other sizes";
  EXPECT_THAT(group_collectives(vector_map(16, {{0, 0, 4}, {1, 8, 12}, {9, 4, 8}, {8, 12, 16}}),
                                vector_map(16, {{0, 0, 8}, {1, 0, 8}})),
              IsEmpty())
      << "a piece outside";
  const ShardMap sum = vector_map(8, {{0, 0, 8, 0}, {1, 0, 8, 1}}, 2);
  EXPECT_THAT(groups(group_collectives(sum, vector_map(8, {{0, 0, 4}, {1, 4, 8}}))),
              ElementsAre(std::pair(kScatter, std::vector{0, 1})));
  EXPECT_THAT(group_collectives(sum, vector_map(8, {{0, 0, 4}, {1, 2, 6}})), IsEmpty());
  EXPECT_THAT(group_collectives(sum, vector_map(8, {{0, 0, 4}, {1, 4, 6}})), IsEmpty());
  EXPECT_THAT(group_collectives(sum, vector_map(8, {{0, 0, 4}, {1, 0, 4}})), IsEmpty()) << "the same part twice";
  for (const int first : {0, 4})
    EXPECT_THAT(group_collectives(sum, vector_map(8, {{0, 0, 8}, {1, first, first + 4}})), IsEmpty())
        << "the whole and a part";
  EXPECT_THAT(group_collectives(vector_map(8, {{0, 0, 8, 0}, {1, 0, 8, 1}, {2, 0, 8, 2}}, 3),
                                vector_map(8, {{0, 0, 4}, {1, 4, 8}, {2, 4, 8}})),
              IsEmpty())
      << "parts that tile the whole, and a copy";
}

TEST(GroupCollectives, PiecesAndPartialsOfUnequallyManyRanksAreNone) {
  const ShardMap whole = vector_map(8, {{0, 0, 8}, {1, 0, 8}, {2, 0, 8}});
  for (const int lone : {0, 4})
    EXPECT_THAT(group_collectives(
                    vector_map(8, {{0, lone, lone + 4}, {1, 4 - lone, 8 - lone}, {2, 4 - lone, 8 - lone}}), whole),
                IsEmpty());
  for (const int lone : {0, 1})
    EXPECT_THAT(group_collectives(vector_map(8, {{0, 0, 8, lone}, {1, 0, 8, 1 - lone}, {2, 0, 8, 1 - lone}}, 2), whole),
                IsEmpty());
  EXPECT_THAT(group_collectives(vector_map(8, {{0, 0, 8, 0}, {1, 0, 8, 1}}, 3), vector_map(8, {{0, 0, 8}, {1, 0, 8}})),
              IsEmpty())
      << "a partial on no rank";
}

TEST(GroupCollectives, RanksWithoutElementsTakeNoPartAndThoseOfSeveralShardsMakeNone) {
  const ShardMap halves = vector_map(8, {{0, 0, 4}, {1, 4, 8}, {2, 8, 8}}),
                 whole = vector_map(8, {{0, 0, 8}, {1, 0, 8}, {2, 8, 8}});
  EXPECT_THAT(groups(group_collectives(halves, whole)), ElementsAre(std::pair(kGather, std::vector{0, 1})));
  EXPECT_THAT(groups(group_collectives(vector_map(8, {{0, 0, 8, 0}, {1, 0, 8, 1}, {2, 8, 8, 1}}, 2), halves)),
              ElementsAre(std::pair(kScatter, std::vector{0, 1})));
  EXPECT_THAT(group_collectives(vector_map(8, {{0, 0, 2}, {0, 2, 4}, {1, 4, 8}}), whole), IsEmpty());
  EXPECT_THAT(group_collectives(vector_map(8, {{0, 0, 8, 0}, {1, 0, 8, 1}}, 2),
                                vector_map(8, {{0, 0, 2}, {0, 2, 4}, {1, 4, 8}})),
              IsEmpty());
}

TEST(GroupCollectives, MapsThatSomeRankTakesNoPartInAreNone) {
  const Mesh small = mesh_of({{"tp", 2}});
  ShardMap from = expand(small, kRows, kEven), to = expand(small, kWhole, kEven);
  EXPECT_EQ(group_collectives(from, to).size(), 1u);
  ShardMap spectator = to;
  spectator.shards.push_back({12, 0, to.shards[0].box});
  EXPECT_THAT(group_collectives(from, spectator), IsEmpty()) << "rank 12 has no piece";
  ShardMap second = from;
  second.shards.push_back({10, 0, from.shards[1].box});
  EXPECT_THAT(group_collectives(second, to), IsEmpty()) << "rank 10 has two shards";
  ShardMap giver = from;
  giver.shards.push_back({12, 0, from.shards[0].box});
  EXPECT_EQ(group_collectives(giver, to).size(), 1u) << "rank 12 has a copy that nobody needs";
  ShardMap sum = expand(small, kSum, kEven);
  EXPECT_EQ(group_collectives(sum, from).size(), 1u);
  sum.partials = 3;
  sum.shards.push_back({12, 2, to.shards[0].box});
  EXPECT_THAT(group_collectives(sum, from), IsEmpty()) << "rank 12 gives a partial, and gets nothing";
}

// What each rank has after the collectives, element by element: the partials in it.
std::map<int, std::map<size_t, std::multiset<int>>> done(const std::vector<GroupCollective>& collectives,
                                                         const ShardMap& from) {
  std::map<int, std::map<size_t, std::multiset<int>>> before, after;
  for (const Shard& shard : from.shards)
    each_element(shard.box, from.shape.size, [&](size_t e) { before[shard.rank][e].insert(shard.partial); });
  for (const GroupCollective& c : collectives)
    for (size_t place = 0; place < c.ranks.size(); ++place) {
      auto& mine = after[c.ranks[place]];
      const auto take = [&](int rank, const Box& box) {
        each_element(box, from.shape.size, [&](size_t e) {
          const std::multiset<int>& there = before.at(rank).at(e);
          mine[e].insert(there.begin(), there.end());
        });
      };
      if (c.call == kGather)
        for (size_t i = 0; i < c.ranks.size(); ++i) take(c.ranks[i], c.pieces[i]);
      else
        for (const int rank : c.ranks) take(rank, c.pieces[c.call == kReduce ? 0 : place]);
    }
  return after;
}

// Random maps, and all layouts of two axes on two dims: whatever is found gives every rank what `to` says, and nothing
// is found where messages of an exchange would be of unequal sizes.
void expect_exact(const ShardMap& from, const ShardMap& to, int& found) {
  const std::vector<GroupCollective> collectives = group_collectives(from, to);
  if (collectives.empty()) return;
  ++found;
  std::set<int> all;
  for (int partial = 0; partial < from.partials; ++partial) all.insert(partial);
  std::map<int, std::map<size_t, std::multiset<int>>> expected;
  for (const Shard& shard : to.shards)
    each_element(shard.box, to.shape.size, [&](size_t e) { expected[shard.rank][e].insert(all.begin(), all.end()); });
  EXPECT_EQ(done(collectives, from), expected);
  for (const GroupCollective& c : collectives) {
    EXPECT_EQ(c.pieces.size(), c.call == kReduce ? 1 : c.ranks.size());
    for (const Box& piece : c.pieces)
      for (int d = 0; d < piece.dims; ++d) EXPECT_EQ(piece.size(d), c.pieces[0].size(d));
  }
}

TEST(GroupCollectives, GiveWhatTheMapsSayForAllLayoutsOfTwoAxes) {
  int found = 0;
  for (const std::vector<Axis>& axes :
       {std::vector<Axis>{{"a", 2}, {"b", 2}}, {{"a", 3}, {"b", 2}}, {{"a", 2}, {"b", 1}}})
    for (const Shape& shape : {plain({6, 12}), plain({4, 6}), Shape{{12, 5}, {{6, 2}, {}}}}) {
      const Mesh mesh = mesh_of(axes);
      std::vector<Layout> layouts;
      for (int use_a = 0; use_a < 4; ++use_a)  // dim 0, dim 1, copies, partials
        for (int use_b = 0; use_b < 4; ++use_b)
          for (const bool a_first : {true, false}) {
            Layout layout = replicated(2);
            for (const int axis : a_first ? std::vector{0, 1} : std::vector{1, 0}) {
              const int use = axis == 0 ? use_a : use_b;
              if (use < 2) layout.split[static_cast<size_t>(use)].push_back(axis);
              if (use == 3) layout.partial.push_back(axis);
            }
            layouts.push_back(layout);
          }
      for (const Layout& from : layouts)
        for (const Layout& to : layouts)
          if (to.partial.empty()) expect_exact(expand(mesh, from, shape), expand(mesh, to, shape), found);
    }
  EXPECT_GT(found, 200);
}

TEST(GroupCollectives, GiveWhatTheMapsSayForRandomMaps) {
  RandomMaps random(7);
  int found = 0;
  for (int i = 0; i < 4000; ++i) {
    const Shape shape = random.shape();
    const Mesh mesh = random.mesh(6);
    const ShardMap from = expand(mesh, random.layout(mesh, shape, true), shape);
    expect_exact(from, expand(mesh, random.layout(mesh, shape, false), shape), found);
    expect_exact(random.map(shape, 6, true), random.map(shape, 6, false), found);
  }
  EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace switchyard::layout
