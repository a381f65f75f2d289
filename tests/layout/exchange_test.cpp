#include "layout/exchange.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>

#include "base/errors.hpp"
#include "random_maps.hpp"

namespace switchyard::layout {
namespace {

using testing::HasSubstr;

// What a rank holds of each element of the tensor: the addends that went into it, in order. Absent elements have no entry.
using Held = std::map<size_t, std::vector<int>>;
using Ranks = std::map<int, Held>;

Ranks filled(const ShardMap& map) {
  Ranks ranks;
  for (const Shard& shard : map.shards) each_element(shard.box, map.shape.size, [&](size_t e) { ranks[shard.rank][e] = {shard.addend}; });
  return ranks;
}

const Part* find_part(const Step& step, int rank) {
  for (const Part& part : step.parts)
    if (part.rank == rank) return &part;
  return nullptr;
}

// Pieces that pass from one rank to another, as the sender and as the receiver list them.
std::vector<Box> boxes_between(const std::vector<Piece>& pieces, int peer) {
  std::vector<Box> boxes;
  for (const Piece& piece : pieces)
    if (piece.peer == peer) boxes.push_back(piece.box);
  return boxes;
}

void expect_paired(const Step& step) {
  std::set<int> peers;
  for (const Part& part : step.parts) peers.insert(part.rank);
  for (const Part& sender : step.parts)
    for (const int peer : peers) {
      const Part* receiver = find_part(step, peer);
      ASSERT_EQ(boxes_between(sender.sends, peer), boxes_between(receiver->receives, sender.rank)) << sender.rank << " > " << peer;
    }
}

// One step: what each rank holds afterwards of its shard in `to`.
Ranks replay(const Step& step, const Ranks& before, const Shape& shape) {
  Ranks after;
  for (const Part& part : step.parts)
    for (const Piece& piece : part.receives)
      each_element(piece.box, shape.size, [&](size_t e) {
        const std::vector<int>& sent = before.at(piece.peer).at(e);
        EXPECT_EQ(piece.add, after[part.rank].contains(e)) << "the first piece overwrites what the buffer had, later ones add";
        std::vector<int>& held = after[part.rank][e];
        held.insert(held.end(), sent.begin(), sent.end());
      });
  return after;
}

Ranks run(const std::vector<Step>& steps, const ShardMap& from) {
  Ranks held = filled(from);
  for (const Step& step : steps) {
    expect_paired(step);
    held = replay(step, held, from.shape);
  }
  return held;
}

std::vector<int> all_addends(int n) {
  std::vector<int> list(static_cast<size_t>(n));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

// Every element of every shard of `to`, and nothing else; sums in the order of addends.
void expect_result(const ShardMap& from, const ShardMap& to) {
  const std::vector<Step> steps = exchange(from, to);
  const Ranks held = run(steps, from);
  Ranks expected;
  for (const Shard& shard : to.shards) {
    if (shard.addend > 0 && from.addends == 1) {
      EXPECT_TRUE(find_part(steps.back(), shard.rank)->zero);
      continue;
    }
    each_element(shard.box, to.shape.size,
                 [&](size_t e) { expected[shard.rank][e] = to.addends > 1 ? std::vector<int>{shard.addend} : all_addends(from.addends); });
  }
  EXPECT_EQ(held, expected);
}

TEST(Exchange, between_random_layouts_gives_every_element_once_and_sums_in_the_order_of_addends) {
  int sums = 0, two_steps = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const Mesh mesh = random.mesh(8), other = random.coin() ? mesh : random.mesh(8);
    const ShardMap from = expand(mesh, random.layout(mesh, shape, true), shape),
                   to = expand(other, random.layout(other, shape, false), shape);
    expect_result(from, to);
    ASSERT_FALSE(testing::Test::HasFailure());
    sums += from.addends > 1;
    two_steps += exchange(from, to).size() == 2;
  }
  EXPECT_GT(sums, 50);
  EXPECT_GT(two_steps, 20);
}

TEST(Exchange, makes_a_copy_an_addend_by_zeros_on_the_other_ranks) {
  const Mesh mesh{{{"tp", 3}}, {4, 5, 6}};
  const Shape shape = plain({6, 2});
  const ShardMap from = expand(mesh, replicated(2), shape), to = expand(mesh, {{{}, {}}, {0}}, shape);
  expect_result(from, to);
  const std::vector<Step> steps = exchange(from, to);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_FALSE(find_part(steps[0], 4)->zero);
  EXPECT_TRUE(find_part(steps[0], 6)->zero);
  EXPECT_TRUE(find_part(steps[0], 6)->receives.empty());
}

TEST(Exchange, keeps_addends_apart_where_the_cut_changes_but_the_sum_stays_pending) {
  const Mesh mesh{{{"a", 2}, {"b", 2}}, {0, 1, 2, 3}};
  const Shape shape = plain({8, 4});
  expect_result(expand(mesh, {{{0}, {}}, {1}}, shape), expand(mesh, {{{}, {0}}, {1}}, shape));
}

// Of each element, every addend of `from` is in one addend of `to`, the same on all its copies; nothing in one means zeros.
void expect_regrouped(const ShardMap& from, const ShardMap& to) {
  const std::vector<Step> steps = exchange(from, to);
  ASSERT_EQ(steps.size(), 1u);
  Ranks held = run(steps, from);
  std::map<int, std::set<int>> parts;  // addend of `to` -> addends of `from` in it
  for (const Shard& shard : to.shards)
    each_element(shard.box, to.shape.size, [&](size_t e) {
      const std::vector<int>& got = held[shard.rank][e];
      EXPECT_EQ(find_part(steps[0], shard.rank)->zero, got.empty());
      const std::set<int> as_set(got.begin(), got.end());
      EXPECT_EQ(as_set.size(), got.size());
      EXPECT_EQ(parts.try_emplace(shard.addend, as_set).first->second, as_set);
    });
  std::vector<int> all;
  for (const auto& [addend, sources] : parts) all.insert(all.end(), sources.begin(), sources.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, all_addends(from.addends));
}

TEST(Exchange, of_addends_into_other_addends_puts_each_into_one) {
  int more = 0, fewer = 0;
  for (unsigned seed = 0; more + fewer < 400; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const Mesh mesh = random.mesh(8);
    const ShardMap from = expand(mesh, random.layout(mesh, shape, true), shape), to = expand(mesh, random.layout(mesh, shape, true), shape);
    if (to.addends == 1 || shape.elements() == 0) continue;
    expect_regrouped(from, to);
    ASSERT_FALSE(testing::Test::HasFailure());
    more += to.addends > from.addends;
    fewer += to.addends < from.addends;
  }
  EXPECT_GT(more, 20);
  EXPECT_GT(fewer, 20);
}

TEST(Exchange, moves_nothing_where_addends_split_or_join_on_their_ranks) {
  const Mesh mesh{{{"a", 2}, {"b", 2}}, {0, 1, 2, 3}};
  const Shape shape = plain({8, 4});
  for (const int axis : {0, 1})
    for (const Step& step : exchange(expand(mesh, {{{}, {}}, {axis}}, shape), expand(mesh, {{{}, {}}, {0, 1}}, shape)))
      for (const Part& part : step.parts) EXPECT_EQ(sent_elements(part), 0) << axis;
}

i64 sent_by(const std::vector<Step>& steps, int rank) {
  i64 total = 0;
  for (const Step& step : steps) total += sent_elements(*find_part(step, rank));
  return total;
}

TEST(Exchange, sends_what_the_ring_collectives_send) {
  const Mesh mesh{{{"tp", 4}}, {0, 1, 2, 3}};
  const Shape shape = plain({12, 5});
  const ShardMap copies = expand(mesh, replicated(2), shape), rows = expand(mesh, {{{0}, {}}, {}}, shape),
                 columns = expand(mesh, {{{}, {0}}, {}}, plain({12, 5})), partial = expand(mesh, {{{}, {}}, {0}}, shape);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(sent_by(exchange(rows, copies), rank), 3 * 15);         // all-gather: the own quarter to three others
    EXPECT_EQ(sent_by(exchange(partial, rows), rank), 3 * 15);        // reduce-scatter
    EXPECT_EQ(sent_by(exchange(partial, copies), rank), 2 * 3 * 15);  // all-reduce: both
    EXPECT_EQ(sent_by(exchange(copies, rows), rank), 0);              // a slice
    EXPECT_EQ(sent_by(exchange(rows, rows), rank), 0);
  }
  EXPECT_EQ(exchange(partial, copies).size(), 2u);
  EXPECT_EQ(sent_by(exchange(rows, columns), 0), 3 * 4);  // all-to-all; columns are cut 1, 1, 1, 2
}

TEST(Exchange, prefers_the_rank_itself_then_the_nearest_holder) {
  const Box all = whole(std::vector<i64>{4});
  const ShardMap from{plain({4}), 1, {{0, 0, all}, {5, 0, all}}}, to{plain({4}), 1, {{0, 0, all}, {4, 0, all}}};
  const std::vector<Step> steps = exchange(from, to);
  EXPECT_EQ(find_part(steps[0], 0)->receives, (std::vector<Piece>{{0, all, false}}));
  EXPECT_EQ(find_part(steps[0], 4)->receives, (std::vector<Piece>{{5, all, false}}));
}

TEST(Exchange, names_every_rank_of_both_sides_even_where_it_has_nothing_to_do) {
  const Box all = whole(std::vector<i64>{4});
  const std::vector<Step> steps = exchange({plain({4}), 1, {{0, 0, all}, {3, 0, all}}}, {plain({4}), 1, {{1, 0, all}}});
  std::vector<int> ranks;
  for (const Part& part : steps[0].parts) ranks.push_back(part.rank);
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 3}));
}

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Exchange, refuses_what_it_cannot_do) {
  const Box all = whole(std::vector<i64>{4}), half{1, {0}, {2}};
  const ShardMap one{plain({4}), 1, {{0, 0, all}}}, lacking{plain({4}), 1, {{0, 0, half}}};
  EXPECT_EQ(message_of([&] { exchange(one, {plain({5}), 1, {}}); }), "exchange: shapes differ");
  EXPECT_EQ(message_of([&] {
              exchange(lacking, {plain({4}), 1, {{1, 0, all}}});
            }),
            "exchange: rank 1 finds no holder of addend 0 for [2,4)");
}

}  // namespace
}  // namespace switchyard::layout
