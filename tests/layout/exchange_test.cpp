#include "layout/exchange.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "../cases.hpp"
#include "../message_of.hpp"
#include "base/errors.hpp"
#include "random_maps.hpp"

namespace switchyard::layout {
namespace {

using testing::HasSubstr;

// A rank's sum of each element of the tensor: the partials in it, in order. Absent elements have no entry.
using Held = std::map<size_t, std::vector<int>>;
using Ranks = std::map<int, Held>;

Ranks filled(const ShardMap& map) {
  Ranks ranks;
  for (const Shard& shard : map.shards)
    each_element(shard.box, map.shape.size, [&](size_t e) { ranks[shard.rank][e] = {shard.partial}; });
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
      ASSERT_EQ(boxes_between(sender.sends, peer), boxes_between(receiver->receives, sender.rank))
          << sender.rank << " > " << peer;
    }
}

// The contents of a rank's input, output and scratch memory.
using Memory = std::map<int, std::map<Place, Held>>;

// Runs one step, which sends the values from its start.
void replay(const Step& step, Memory& memory, const Shape& shape) {
  const Memory before = memory;
  std::map<std::pair<int, int>, std::vector<const Piece*>> sent;
  for (const Part& part : step.parts)
    for (const Piece& piece : part.sends) sent[{part.rank, piece.peer}].push_back(&piece);
  std::map<std::pair<int, int>, size_t> next;
  for (const Part& part : step.parts)
    for (const Piece& piece : part.receives) {
      const std::pair<int, int> ends(piece.peer, part.rank);
      const Place source = sent.at(ends).at(next[ends]++)->place;
      each_element(piece.box, shape.size, [&](size_t e) {
        const std::vector<int>& came = before.at(piece.peer).at(source).at(e);
        Held& there = memory[part.rank][piece.place];
        EXPECT_EQ(piece.add, there.contains(e)) << "the first piece overwrites what the buffer had, later ones add";
        there[e].insert(there[e].end(), came.begin(), came.end());
      });
    }
}

Ranks run(const Exchange& exchange, const ShardMap& from) {
  Memory memory;
  for (auto& [rank, held] : filled(from)) memory[rank][Place::input] = held;
  for (const Step& step : exchange.steps) {
    expect_paired(step);
    replay(step, memory, from.shape);
  }
  Ranks outputs;
  for (auto& [rank, places] : memory)
    if (!places[Place::output].empty()) outputs[rank] = places[Place::output];
  return outputs;
}

std::vector<int> all_partials(int n) {
  std::vector<int> list(static_cast<size_t>(n));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

// Checks that the outputs have every element of every shard of `to` and no others, with sums in the order of partials.
void expect_result(const ShardMap& from, const ShardMap& to) {
  const Exchange made = exchange(from, to);
  verify_exchange(made, from, to);
  const std::vector<Step>& steps = made.steps;
  const Ranks held = run(made, from);
  Ranks expected;
  for (const Shard& shard : to.shards) {
    if (shard.partial > 0 && from.partials == 1) {
      EXPECT_TRUE(find_part(steps.back(), shard.rank)->zero);
      continue;
    }
    each_element(shard.box, to.shape.size, [&](size_t e) {
      expected[shard.rank][e] = to.partials > 1 ? std::vector<int>{shard.partial} : all_partials(from.partials);
    });
  }
  EXPECT_EQ(held, expected);
}

// Source, with or without partials, and destination, on the same ranks or on others.
std::pair<ShardMap, ShardMap> random_exchange(RandomMaps& random) {
  const Shape shape = random.shape();
  const Mesh mesh = random.mesh(8), other = random.coin() ? mesh : random.mesh(8);
  ShardMap from = expand(mesh, random.layout(mesh, shape, true), shape);
  return {std::move(from), expand(other, random.layout(other, shape, false), shape)};
}

TEST(Exchange, between_random_layouts_gives_every_element_once_and_sums_in_the_order_of_partials) {
  int sums = 0, two_steps = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const auto [from, to] = random_exchange(random);
    expect_result(from, to);
    ASSERT_FALSE(testing::Test::HasFailure());
    sums += from.partials > 1;
    two_steps += exchange(from, to).steps.size() == 2;
  }
  EXPECT_GT(sums, 50);
  EXPECT_GT(two_steps, 20);
}

TEST(Exchange, makes_a_copy_a_partial_by_zeros_on_the_other_ranks) {
  const Mesh mesh{{{"tp", 3}}, {4, 5, 6}};
  const Shape shape = plain({6, 2});
  const ShardMap from = expand(mesh, replicated(2), shape), to = expand(mesh, {{{}, {}}, {0}}, shape);
  expect_result(from, to);
  const std::vector<Step> steps = exchange(from, to).steps;
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_FALSE(find_part(steps[0], 4)->zero);
  EXPECT_TRUE(find_part(steps[0], 6)->zero);
  EXPECT_TRUE(find_part(steps[0], 6)->receives.empty());
}

TEST(Exchange, keeps_partials_apart_where_the_cut_changes_but_the_sum_stays_pending) {
  const Mesh mesh{{{"a", 2}, {"b", 2}}, {0, 1, 2, 3}};
  const Shape shape = plain({8, 4});
  expect_result(expand(mesh, {{{0}, {}}, {1}}, shape), expand(mesh, {{{}, {0}}, {1}}, shape));
}

// Checks for each element that every partial of `from` is in one partial of `to`, the same on all its copies; a partial
// of `to` without any is zero.
void expect_regrouped(const ShardMap& from, const ShardMap& to) {
  const Exchange made = exchange(from, to);
  verify_exchange(made, from, to);
  const std::vector<Step>& steps = made.steps;
  ASSERT_EQ(steps.size(), 1u);
  Ranks held = run(made, from);
  std::map<int, std::set<int>> parts;  // partial of `to` -> partials of `from` in it
  for (const Shard& shard : to.shards)
    each_element(shard.box, to.shape.size, [&](size_t e) {
      const std::vector<int>& got = held[shard.rank][e];
      EXPECT_EQ(find_part(steps[0], shard.rank)->zero, got.empty());
      const std::set<int> as_set(got.begin(), got.end());
      EXPECT_EQ(as_set.size(), got.size());
      EXPECT_EQ(parts.try_emplace(shard.partial, as_set).first->second, as_set);
    });
  std::vector<int> all;
  for (const auto& [partial, sources] : parts) all.insert(all.end(), sources.begin(), sources.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, all_partials(from.partials));
}

TEST(Exchange, of_partials_into_other_partials_puts_each_into_one) {
  int more = 0, fewer = 0;
  for (unsigned seed = 0; more + fewer < 400; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const Mesh mesh = random.mesh(8);
    const ShardMap from = expand(mesh, random.layout(mesh, shape, true), shape),
                   to = expand(mesh, random.layout(mesh, shape, true), shape);
    if (to.partials == 1 || shape.elements() == 0) continue;
    expect_regrouped(from, to);
    ASSERT_FALSE(testing::Test::HasFailure());
    more += to.partials > from.partials;
    fewer += to.partials < from.partials;
  }
  EXPECT_GT(more, 20);
  EXPECT_GT(fewer, 20);
}

TEST(Exchange, moves_nothing_where_partials_split_or_join_on_their_ranks) {
  const Mesh mesh{{{"a", 2}, {"b", 2}}, {0, 1, 2, 3}};
  const Shape shape = plain({8, 4});
  for (const int axis : {0, 1})
    for (const Step& step :
         exchange(expand(mesh, {{{}, {}}, {axis}}, shape), expand(mesh, {{{}, {}}, {0, 1}}, shape)).steps)
      for (const Part& part : step.parts) EXPECT_EQ(sent_elements(part), 0) << axis;
}

i64 sent_by(const Exchange& exchange, int rank) {
  i64 total = 0;
  for (const Step& step : exchange.steps) total += sent_elements(*find_part(step, rank));
  return total;
}

TEST(Exchange, sends_what_the_ring_collectives_send) {
  const Mesh mesh{{{"tp", 4}}, {0, 1, 2, 3}};
  const Shape shape = plain({12, 5});
  const ShardMap copies = expand(mesh, replicated(2), shape), rows = expand(mesh, {{{0}, {}}, {}}, shape),
                 columns = expand(mesh, {{{}, {0}}, {}}, plain({12, 5})),
                 partial = expand(mesh, {{{}, {}}, {0}}, shape);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(sent_by(exchange(rows, copies), rank), 3 * 15);         // all-gather: its own quarter to three others
    EXPECT_EQ(sent_by(exchange(partial, rows), rank), 3 * 15);        // reduce-scatter
    EXPECT_EQ(sent_by(exchange(partial, copies), rank), 2 * 3 * 15);  // all-reduce: both
    EXPECT_EQ(sent_by(exchange(copies, rows), rank), 0);              // a slice
    EXPECT_EQ(sent_by(exchange(rows, rows), rank), 0);
  }
  EXPECT_EQ(exchange(partial, copies).steps.size(), 2u);
  EXPECT_EQ(sent_by(exchange(rows, columns), 0), 3 * 4);  // all-to-all; columns are cut 1, 1, 1, 2
}

TEST(Exchange, prefers_the_rank_itself_then_the_nearest_holder) {
  const Box all = whole(std::vector<i64>{4});
  const ShardMap from{plain({4}), 1, {{0, 0, all}, {5, 0, all}}}, to{plain({4}), 1, {{0, 0, all}, {4, 0, all}}};
  const std::vector<Step> steps = exchange(from, to).steps;
  EXPECT_EQ(find_part(steps[0], 0)->receives, (std::vector<Piece>{{0, all, false}}));
  EXPECT_EQ(find_part(steps[0], 4)->receives, (std::vector<Piece>{{5, all, false}}));
}

TEST(Exchange, names_every_rank_of_both_sides_even_where_it_has_nothing_to_do) {
  const Box all = whole(std::vector<i64>{4});
  const std::vector<Step> steps =
      exchange({plain({4}), 1, {{0, 0, all}, {3, 0, all}}}, {plain({4}), 1, {{1, 0, all}}}).steps;
  std::vector<int> ranks;
  for (const Part& part : steps[0].parts) ranks.push_back(part.rank);
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 3}));
}

TEST(Exchange, refuses_what_it_cannot_do) {
  const Box all = whole(std::vector<i64>{4}), half{1, {0}, {2}};
  const ShardMap one{plain({4}), 1, {{0, 0, all}}}, lacking{plain({4}), 1, {{0, 0, half}}};
  EXPECT_EQ(message_of<InternalError>([&] { exchange(one, {plain({5}), 1, {}}); }), "exchange: shapes differ");
  EXPECT_EQ(message_of<InternalError>([&] {
              exchange(lacking, {plain({4}), 1, {{1, 0, all}}});
            }),
            "exchange: rank 1 finds no holder of partial 0 for [2,4)");
}

// Does the groups' collectives in place of the steps that they are.
void replace(const Stretch& stretch, Memory& memory, const Shape& shape) {
  const Memory before = memory;
  for (const GroupCollective& c : stretch.groups)
    for (size_t place = 0; place < c.ranks.size(); ++place)
      for (size_t from = 0; from < c.ranks.size(); ++from) {
        const bool gathers = c.call == GroupCall::all_gather;
        const Box& piece = c.pieces[c.pieces.size() == 1 ? 0 : gathers ? from : place];
        each_element(piece, shape.size, [&](size_t e) {
          const std::vector<int>& given = before.at(c.ranks[from]).at(stretch.source).at(e);
          std::vector<int>& there = memory[c.ranks[place]][Place::output][e];
          if (gathers) there.clear();
          there.insert(there.end(), given.begin(), given.end());
        });
      }
}

// Outputs, each sum as a set, with one stretch replaced.
Ranks run_with(const Exchange& exchange, const Stretch& stretch, const ShardMap& from) {
  Memory memory;
  for (auto& [rank, held] : filled(from)) memory[rank][Place::input] = held;
  for (size_t s = 0; s < exchange.steps.size(); ++s) {
    if (s == stretch.first) replace(stretch, memory, from.shape);
    if (s < stretch.first || s >= stretch.end) replay(exchange.steps[s], memory, from.shape);
  }
  Ranks outputs;
  for (auto& [rank, places] : memory)
    for (auto& [e, partials] : places[Place::output]) {
      std::ranges::sort(partials);
      outputs[rank][e] = partials;
    }
  return outputs;
}

TEST(Exchange, its_stretches_of_collectives_do_what_their_steps_do) {
  constexpr unsigned kSeeds = cases(1000u, 250u);
  std::map<GroupCall, int> seen;
  int parts = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    Shape shape = random.shape();
    for (i64& size : shape.size) size *= 2;
    const Mesh mesh = random.mesh(8);
    const ShardMap from = expand(mesh, random.layout(mesh, shape, true), shape),
                   to = expand(mesh, random.layout(mesh, shape, false), shape);
    std::vector<int> host;
    for (int rank = 0; rank < 8; ++rank) host.push_back(random.below(2));
    for (const Exchange& made : {exchange(from, to), exchange_over_hosts(from, to, host)})
      for (size_t i = 0; i < made.stretches.size(); ++i) {
        const Stretch& stretch = made.stretches[i];
        const Ranks held = run_with(made, stretch, from);
        for (const Shard& shard : to.shards)
          each_element(shard.box, shape.size,
                       [&](size_t e) { EXPECT_EQ(held.at(shard.rank).at(e), all_partials(from.partials)); });
        ++seen[stretch.groups[0].call];
        parts += stretch.end - stretch.first < made.steps.size();
        EXPECT_TRUE(i == 0 || made.stretches[i - 1].first != stretch.first || made.stretches[i - 1].end > stretch.end);
      }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  for (const GroupCall call : {GroupCall::all_gather, GroupCall::reduce_scatter, GroupCall::all_reduce})
    EXPECT_GT(seen[call], cases(20, 5)) << name_of(call);
  EXPECT_GT(parts, cases(20, 5)) << "sums that are gathered";
}

TEST(Exchange, of_a_sum_for_every_rank_is_one_collective_or_two) {
  const Mesh mesh{{{"tp", 2}}, {0, 1}};
  const Shape shape = plain({4, 2});
  const Exchange made = exchange(expand(mesh, {{{}, {}}, {0}}, shape), expand(mesh, replicated(2), shape));
  std::vector<std::tuple<size_t, size_t, Place, GroupCall>> stretches;
  for (const Stretch& s : made.stretches) stretches.emplace_back(s.first, s.end, s.source, s.groups[0].call);
  EXPECT_EQ(stretches, (decltype(stretches){{0, 2, Place::input, GroupCall::all_reduce},
                                            {0, 1, Place::input, GroupCall::reduce_scatter},
                                            {1, 2, Place::output, GroupCall::all_gather}}));
}

// Elements that each rank sends to other hosts.
std::vector<i64> crossing(const Exchange& exchange, const std::vector<int>& host) {
  std::vector<i64> elements(host.size(), 0);
  for (const Step& step : exchange.steps)
    for (const Part& part : step.parts)
      for (const Piece& piece : part.sends)
        if (host[static_cast<size_t>(piece.peer)] != host[static_cast<size_t>(part.rank)])
          elements[static_cast<size_t>(part.rank)] += piece.box.elements();
  return elements;
}

std::vector<int> even_hosts(int hosts, int devices) {
  std::vector<int> host;
  for (int rank = 0; rank < hosts * devices; ++rank) host.push_back(rank / devices);
  return host;
}

// For an all-gather or a sum of N elements over tp ranks on several hosts, each host must receive what it lacks from
// the others, and must send each of them at least one sum of their part. Its ranks share that evenly.
TEST(ExchangeOverHosts, crosses_no_more_than_the_bound_and_on_all_ports) {
  for (const auto& [hosts, devices] : {std::pair(2, 8), std::pair(4, 2), std::pair(3, 3), std::pair(2, 1)}) {
    const int tp = hosts * devices;
    const std::vector<int> host = even_hosts(hosts, devices);
    Mesh mesh{{{"tp", tp}}, {}};
    for (int rank = 0; rank < tp; ++rank) mesh.ranks.push_back(rank);
    const Shape shape = plain({tp, 6});
    const i64 N = shape.elements();
    const ShardMap whole = expand(mesh, replicated(2), shape), rows = expand(mesh, {{{0}, {}}, {}}, shape),
                   sum = expand(mesh, {{{}, {}}, {0}}, shape);
    const i64 bound = N * (hosts - 1) / tp;  // N / hosts from each host to each other one, by its ranks
    for (const auto& [from, to, times] :
         {std::tuple(&rows, &whole, 1), std::tuple(&sum, &rows, 1), std::tuple(&sum, &whole, 2)}) {
      const Exchange made = exchange_over_hosts(*from, *to, host);
      verify_exchange(made, *from, *to);
      EXPECT_EQ(crossing(made, host), std::vector<i64>(host.size(), times * bound)) << hosts << " x " << devices;
      EXPECT_EQ(crossing(exchange(*from, *to), host), std::vector<i64>(host.size(), times * bound * devices));
    }
  }
}

TEST(ExchangeOverHosts, adds_inside_hosts_first_and_keeps_those_sums_apart) {
  Mesh mesh{{{"tp", 4}}, {0, 1, 2, 3}};
  const Shape shape = plain({4, 2});
  const ShardMap sum = expand(mesh, {{{}, {}}, {0}}, shape), rows = expand(mesh, {{{0}, {}}, {}}, shape);
  const Exchange made = exchange_over_hosts(sum, rows, std::vector<int>{0, 0, 1, 1});
  ASSERT_EQ(made.steps.size(), 2u);
  for (size_t part = 0; part < 4; ++part)
    EXPECT_EQ(made.scratch[part].size(), 1u) << "one row for a rank of the other host";
  const Ranks held = run(made, sum);
  EXPECT_EQ(held.at(0).begin()->second, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(held.at(2).begin()->second, (std::vector<int>{2, 3, 0, 1})) << "the own host's first";
}

TEST(ExchangeOverHosts, between_random_layouts_on_random_hosts_is_proved) {
  int scratch = 0, passed_on = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const auto [from, to] = random_exchange(random);
    std::vector<int> host;
    for (int rank = 0; rank < 8; ++rank) host.push_back(random.below(3));
    const Exchange made = exchange_over_hosts(from, to, host);
    ASSERT_NO_THROW(verify_exchange(made, from, to));
    std::vector<i64> straight = crossing(exchange(from, to), host), over = crossing(made, host);
    EXPECT_LE(std::accumulate(over.begin(), over.end(), i64{0}),
              std::accumulate(straight.begin(), straight.end(), i64{0}));
    for (const auto& boxes : made.scratch) scratch += !boxes.empty();
    passed_on += made.steps.size() > 1 && from.partials == 1;
    std::map<size_t, std::vector<int>> sums;  // the same on all copies
    for (const auto& [rank, held] : run(made, from))
      for (const auto& [element, sum] : held) EXPECT_EQ(sums.try_emplace(element, sum).first->second, sum);
  }
  EXPECT_GT(scratch, 50);
  EXPECT_GT(passed_on, 50);
}

TEST(QuickestExchange, goes_over_hosts_where_that_sends_less_between_them) {
  Mesh mesh{{{"tp", 4}}, {0, 1, 2, 3}};
  const Shape shape = plain({4, 512});
  const ShardMap whole = expand(mesh, replicated(2), shape), rows = expand(mesh, {{{0}, {}}, {}}, shape),
                 columns = expand(mesh, {{{}, {0}}, {}}, shape);
  const auto crossings = [&](const ShardMap& from, const ShardMap& to, const std::vector<int>& host) {
    return crossing(quickest_exchange(from, to, host), host);
  };
  EXPECT_EQ(crossings(rows, whole, {0, 0, 1, 1}), (std::vector<i64>{512, 512, 512, 512}));
  EXPECT_EQ(crossings(rows, whole, {0, 1, 2, 3}), (std::vector<i64>(4, 3 * 512))) << "a host each: directly";
  EXPECT_EQ(quickest_exchange(rows, whole, std::vector<int>(4, 0)).steps.size(), 1u);
  EXPECT_EQ(crossings(rows, columns, {0, 0, 1, 1}), (std::vector<i64>(4, 2 * 128)))
      << "all to all: every piece is for one rank";
}

TEST(HostPattern, numbers_hosts_as_they_appear) {
  EXPECT_EQ(host_pattern(std::vector<int>{5, 4, 1, 0}, cluster::uniform(3, 2)), (std::vector<int>{0, 0, 1, 1}));
}

// The error of an exchange that `spoil` has changed.
std::string error_of(const std::function<void(Exchange&)>& spoil) {
  Mesh mesh{{{"tp", 4}}, {0, 1, 2, 3}};
  const Shape shape = plain({4, 2});
  const ShardMap sum = expand(mesh, {{{}, {}}, {0}}, shape), whole = expand(mesh, replicated(2), shape);
  Exchange made = exchange_over_hosts(sum, whole, std::vector<int>{0, 0, 1, 1});
  spoil(made);
  return message_of<InternalError>([&] { verify_exchange(made, sum, whole); });
}

TEST(VerifyExchange, finds_what_is_wrong) {
  EXPECT_EQ(error_of([](Exchange&) {}), "no error");
  EXPECT_THAT(error_of([](Exchange& e) { e.steps.pop_back(); }), HasSubstr("never reaches rank"));
  EXPECT_THAT(error_of([](Exchange& e) { e.steps.erase(e.steps.begin()); }),
              HasSubstr("the sender does not hold it then"));
  EXPECT_THAT(error_of([](Exchange& e) { e.scratch[0].clear(); }), HasSubstr("not inside a shard of the"));
  EXPECT_THAT(error_of([](Exchange& e) { e.steps[1].parts[0].receives.pop_back(); }), HasSubstr("nobody receives it"));
  EXPECT_THAT(error_of([](Exchange& e) { e.steps[1].parts[0].sends.pop_back(); }), HasSubstr("nobody sends it"));
  EXPECT_THAT(error_of([](Exchange& e) { e.steps[1].parts[0].receives[1].add = false; }),
              HasSubstr("it overwrites what is there"));
  EXPECT_THAT(error_of([](Exchange& e) { e.steps[1].parts[0].receives[0].add = true; }), HasSubstr("added to nothing"));
  EXPECT_THAT(error_of([](Exchange& e) { e.steps.push_back(e.steps.back()); }),
              HasSubstr("it overwrites what is there"));
  EXPECT_THAT(error_of([](Exchange& e) {
                std::vector<Part>& parts = e.steps[2].parts;
                const Box sum = parts[0].sends[0].box;
                parts[1].sends.push_back({0, sum, false, Place::input});
                parts[0].receives.push_back({1, sum, true});
              }),
              HasSubstr("in the same step"));
  EXPECT_THAT(error_of([](Exchange& e) {
                for (Part& part : e.steps[1].parts) {  // no rank adds up the other host's partials
                  std::erase_if(part.sends, [](const Piece& piece) { return piece.place == Place::scratch; });
                  std::erase_if(part.receives, [&](const Piece& piece) { return piece.peer / 2 != part.rank / 2; });
                }
              }),
              HasSubstr("0 times"));
}

// Exchanges of one step, of vectors of 8 elements, with parts of ranks 0, 1 and 2.
Box elements(i64 lo, i64 hi) { return {1, {lo}, {hi}}; }
Shard part_of_8(int rank, i64 lo, i64 hi, int partial = 0) { return {rank, partial, elements(lo, hi)}; }
using Pieces = std::vector<Piece>;
struct OneStep {
  std::vector<Pieces> sends, receives;  // by rank
  std::vector<Shard> from, to;
  int partials = 1;

  std::string error() const {
    Exchange made{.steps = {{}}, .scratch = std::vector<std::vector<Box>>(3)};
    for (size_t rank = 0; rank < 3; ++rank)
      made.steps[0].parts.push_back({static_cast<int>(rank), sends[rank], receives[rank]});
    return message_of<InternalError>([&] { verify_exchange(made, {plain({8}), partials, from}, {plain({8}), 1, to}); });
  }
};
Piece sent(int peer, i64 lo, i64 hi, Place place = Place::input) { return {peer, elements(lo, hi), false, place}; }
Piece received(int peer, i64 lo, i64 hi, bool add = false, Place place = Place::output) {
  return {peer, elements(lo, hi), add, place};
}

TEST(VerifyExchange, finds_pieces_that_are_nowhere_or_in_the_wrong_memory) {
  const OneStep right{.sends = {Pieces{sent(2, 0, 4)}, Pieces{sent(2, 4, 8)}, {}},
                      .receives = {{}, {}, Pieces{received(0, 0, 4), received(1, 4, 8)}},
                      .from = {part_of_8(0, 0, 5), part_of_8(1, 3, 8)},
                      .to = {part_of_8(2, 0, 8)}};
  EXPECT_EQ(right.error(), "no error");
  OneStep wrong = right;
  wrong.sends[1].clear();
  wrong.receives[2].pop_back();
  EXPECT_EQ(wrong.error(), "box [4,5) never reaches rank 2");
  wrong = right;
  wrong.sends[0].insert(wrong.sends[0].begin(), sent(2, 2, 2));
  wrong.receives[2].insert(wrong.receives[2].begin(), received(0, 2, 2));
  EXPECT_EQ(wrong.error(), "step 0, box [2,2) from rank 0 to rank 2: not inside a shard of the sender");
  wrong = right;
  wrong.sends[0][0] = sent(2, 0, 6);
  wrong.receives[2][0] = received(0, 0, 6);
  EXPECT_EQ(wrong.error(), "step 0, box [0,6) from rank 0 to rank 2: not inside a shard of the sender");
  wrong = right;
  wrong.sends[0][0] = sent(2, 5, 8);
  wrong.receives[2][0] = received(0, 5, 8);
  EXPECT_EQ(wrong.error(), "step 0, box [5,8) from rank 0 to rank 2: not inside a shard of the sender");
  wrong = right;
  wrong.to[0].box = elements(0, 7);
  EXPECT_EQ(wrong.error(), "step 0, box [4,8) from rank 1 to rank 2: not inside a shard of the receiver");
  wrong = right;
  wrong.from.push_back(part_of_8(2, 0, 8));
  wrong.receives[2][0].place = Place::input;
  EXPECT_EQ(wrong.error(), "step 0, box [0,4) from rank 0 to rank 2: not inside a shard of the receiver");
  wrong = right;
  wrong.receives[2][1].place = Place::scratch;
  EXPECT_EQ(wrong.error(), "step 0, box [4,8) from rank 1 to rank 2: not inside a shard of the receiver");
}

TEST(VerifyExchange, finds_pieces_received_in_another_order_than_they_are_sent) {
  OneStep step{.sends = {Pieces{sent(2, 0, 4), sent(2, 4, 8)}, {}, {}},
               .receives = {{}, {}, Pieces{received(0, 0, 4), received(0, 4, 8)}},
               .from = {part_of_8(0, 0, 8)},
               .to = {part_of_8(2, 0, 8)}};
  EXPECT_EQ(step.error(), "no error");
  std::swap(step.receives[2][0], step.receives[2][1]);
  EXPECT_EQ(step.error(), "step 0, box [4,8) from rank 0 to rank 2: nobody sends it, or something else first");
}

TEST(VerifyExchange, finds_local_pieces_that_are_not_of_the_input) {
  OneStep step{.sends = {Pieces{sent(0, 0, 8)}, {}, {}},
               .receives = {Pieces{received(0, 0, 8)}, {}, {}},
               .from = {part_of_8(0, 0, 8)},
               .to = {part_of_8(0, 0, 8)}};
  EXPECT_EQ(step.error(), "no error");
  step.sends[0][0].place = Place::output;
  EXPECT_EQ(step.error(), "step 0, box [0,8) from rank 0 to rank 0: a local piece that isn't of the input");
}

TEST(VerifyExchange, lets_copies_add_in_any_order_but_wants_the_same_partials_in_all) {
  OneStep step{.sends = {Pieces{sent(0, 0, 8), sent(1, 0, 8)}, Pieces{sent(1, 0, 8), sent(0, 0, 8)}, {}},
               .receives = {Pieces{received(0, 0, 8), received(1, 0, 8, true)},
                            Pieces{received(1, 0, 8), received(0, 0, 8, true)},
                            {}},
               .from = {part_of_8(0, 0, 8, 0), part_of_8(1, 0, 8, 1)},
               .to = {part_of_8(0, 0, 8), part_of_8(1, 0, 8)},
               .partials = 2};
  EXPECT_EQ(step.error(), "no error");
  step.sends[0].pop_back();
  step.receives[1].pop_back();
  EXPECT_EQ(step.error(), "box [0,8) has partials [1] on rank 1, [0, 1] on others");
  step.sends[1].pop_back();
  step.receives[0].pop_back();
  EXPECT_EQ(step.error(), "box [0,8) has partials [1] on rank 1, [0] on others");
}

ShardMap of_8(std::vector<Shard> shards, int partials = 1) { return {plain({8}), partials, std::move(shards)}; }

TEST(Exchange, is_no_collective_where_a_rank_only_gives_something) {
  ShardMap from = of_8({part_of_8(0, 0, 4), part_of_8(1, 4, 8)});
  const ShardMap to = of_8({part_of_8(0, 0, 8), part_of_8(1, 0, 8)});
  EXPECT_EQ(exchange(from, to).stretches.size(), 1u);
  from.shards.push_back(part_of_8(2, 0, 4));
  EXPECT_TRUE(exchange(from, to).stretches.empty());
}

TEST(ExchangeOverHosts, takes_partials_from_the_owner_then_its_host_then_hosts_that_contribute_in_any_case) {
  const ShardMap to = of_8({part_of_8(0, 0, 8)});
  const auto made = [&](const ShardMap& from, const std::vector<int>& host) {
    Exchange exchange = exchange_over_hosts(from, to, host);
    verify_exchange(exchange, from, to);
    return exchange;
  };
  const Exchange gathered =
      made(of_8({part_of_8(1, 0, 8, 0), part_of_8(2, 0, 8, 0), part_of_8(3, 0, 8, 1)}, 2), {0, 1, 2, 2});
  EXPECT_EQ(sent_by(gathered, 1), 0) << "rank 3's host adds and sends both";
  const Exchange near =
      made(of_8({part_of_8(2, 0, 8, 0), part_of_8(1, 0, 8, 0), part_of_8(3, 0, 8, 1)}, 2), {0, 0, 1, 1});
  EXPECT_EQ(sent_by(near, 1), 8);
  EXPECT_EQ(sent_by(near, 2), 0);
  const Exchange own = made(of_8({part_of_8(1, 0, 8, 0), part_of_8(0, 0, 8, 0), part_of_8(2, 0, 8, 1)}, 2), {0, 0, 1});
  EXPECT_EQ(sent_by(own, 1), 0);
  EXPECT_EQ(own.steps.size(), 1u) << "a lone partial of a host crosses as it is";
  EXPECT_EQ(own.scratch, std::vector<std::vector<Box>>(3));
}

TEST(ExchangeOverHosts, that_brings_nothing_has_one_step_with_every_rank) {
  const Exchange made =
      exchange_over_hosts(of_8({part_of_8(0, 0, 8)}), of_8({part_of_8(1, 8, 8)}), std::vector<int>{0, 1});
  ASSERT_EQ(made.steps.size(), 1u);
  EXPECT_EQ(made.steps[0].parts.size(), 2u);
}

TEST(ExchangeOverHosts, refuses_what_it_cannot_do) {
  const ShardMap whole = of_8({part_of_8(0, 0, 8)}), sum = of_8({part_of_8(0, 0, 8), part_of_8(1, 0, 8, 1)}, 2);
  const auto error = [](const ShardMap& from, const ShardMap& to) {
    return message_of<InternalError>([&] { exchange_over_hosts(from, to, std::vector<int>{0, 1}); });
  };
  EXPECT_EQ(error(whole, {plain({9}), 1, {part_of_8(1, 0, 8)}}), "exchange: shapes differ");
  EXPECT_EQ(error(whole, sum), "exchange over hosts into 2 partials");
  EXPECT_EQ(error(of_8({part_of_8(0, 0, 8)}, 2), whole), "exchange: rank 0 finds no holder of partial 1 for [0,8)");
  EXPECT_EQ(quickest_exchange(whole, sum, std::vector<int>{0, 1}).steps.size(), 1u) << "goes directly";
}

}  // namespace
}  // namespace switchyard::layout
