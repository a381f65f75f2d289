#include "switching/plan.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <set>
#include <tuple>

#include "../cases.hpp"
#include "../layout/replay.hpp"
#include "../message_of.hpp"
#include "base/errors.hpp"
#include "model_maps.hpp"
#include "switching/bounds.hpp"

namespace switchyard::switching {
namespace {

using layout::ShardMap;
using testing::HasSubstr;

constexpr Planner kAll[] = {Planner::relay, Planner::greedy, Planner::first, Planner::round_robin};

TEST(Plans, name_the_tensor_that_nobody_holds) {
  const Model model = llama(2, 16, 4, 2, 24, 0);
  auto from = stored(model, strategy(1, 2, 1, 2));
  from[7].shards.pop_back();
  const std::string text = message_of<InternalError>([&] {
    plan_switch(model.units, from, {}, stored(model, strategy(2, 1, 1, 2)), cluster::uniform(1, 2), Planner::relay);
  });
  EXPECT_THAT(text, HasSubstr("tensor 7: box [8,24)x[0,16) is wanted by rank 0 and held by none"));
}

TEST(Plans, name_the_tensor_whose_partial_nobody_holds) {
  const Model model = llama(1, 16, 4, 2, 24, 0);
  auto grad = gradients(model, strategy(2, 1, 1, 1));
  grad[3].shards.pop_back();
  for (const Planner planner : kAll) {
    const std::string text = message_of<InternalError>(
        [&] { plan_reduce(model.units, grad, home(model, strategy(1, 1, 1, 1)), cluster::uniform(1, 2), planner); });
    EXPECT_THAT(text, HasSubstr("tensor 3: box [0,8)x[0,16) has 1 of 2 partials"));
  }
}

TEST(Plans, refuse_lists_of_different_lengths) {
  const Model model = llama(1, 16, 4, 2, 24, 0);
  const auto maps = stored(model, strategy(1, 1, 1, 1));
  const cluster::Cluster one = cluster::uniform(1, 1);
  EXPECT_THAT(message_of<InternalError>([&] { plan_switch(model.units, {maps[0]}, {}, maps, one, Planner::relay); }),
              HasSubstr("9 tensors to move, 1 sources"));
  EXPECT_THAT(message_of<InternalError>([&] { plan_switch(model.units, {}, {maps[0]}, maps, one, Planner::relay); }),
              HasSubstr("1 compute copies"));
  for (const int tensor : {-1, 9})
    EXPECT_EQ(message_of<InternalError>([&] { plan_switch({{{tensor}}}, maps, {}, maps, one, Planner::relay); }),
              fmt::format("unit with tensor {} of 9", tensor));
  EXPECT_THAT(message_of<InternalError>([&] { plan_reduce(model.units, {maps[0]}, maps, one, Planner::relay); }),
              HasSubstr("9 tensors to move, 1 sources"));
}

TEST(Plans, a_switch_to_the_same_strategy_moves_nothing) {
  const Model model = llama(4, 32, 4, 2, 48, 40);
  const auto maps = stored(model, strategy(2, 2, 2, 4));
  const cluster::Cluster hosts = cluster::uniform(2, 4);
  for (const Planner planner : kAll) {
    EXPECT_EQ(
        traffic(plan_switch(model.units, maps, home(model, strategy(1, 4, 2, 4)), maps, hosts, planner), hosts, 2),
        (Traffic{}));
  }
}

TEST(Plans, equal_units_get_equal_moves_and_others_their_own) {
  const Model model = llama(4, 32, 4, 2, 48, 0);
  const auto from = stored(model, strategy(1, 2, 2, 4)), to = stored(model, strategy(4, 1, 1, 4));
  const MovePlan plan = plan_switch(model.units, from, {}, to, cluster::uniform(2, 2), Planner::relay);
  ASSERT_EQ(plan.units[1].moves.rounds.size(), plan.units[0].moves.rounds.size());
  for (size_t r = 0; r < plan.units[0].moves.rounds.size(); ++r) {
    std::vector<layout::Msg> round = plan.units[0].moves.rounds[r];
    for (layout::Msg& msg : round) msg.tensor += 9;
    EXPECT_EQ(plan.units[1].moves.rounds[r], layout::MessageList(round));
    EXPECT_EQ(plan.units[1].moves.rounds[r].ranks(), plan.units[0].moves.rounds[r].ranks()) << "not equal copies";
  }
  EXPECT_NE(pairs(plan.units[2].moves.rounds[0], 1), pairs(plan.units[0].moves.rounds[0], 1));
}

TEST(Plans, units_of_other_stages_share_messages_under_other_names) {
  const Model model = llama(4, 32, 4, 2, 48, 0);
  const auto from = stored(model, strategy(1, 2, 2, 4)), to = stored(model, strategy(2, 1, 2, 4));
  const MovePlan plan = plan_switch(model.units, from, {}, to, cluster::uniform(2, 2), Planner::relay);
  const auto &first = plan.units[0].moves.rounds, &other = plan.units[2].moves.rounds;
  ASSERT_FALSE(first.empty());
  ASSERT_EQ(first.size(), other.size());
  for (size_t r = 0; r < first.size(); ++r) {
    EXPECT_EQ(first[r].pattern(), other[r].pattern());
    std::vector<layout::Msg> round = first[r];
    for (layout::Msg& msg : round) msg = {msg.src + 2, msg.dst + 2, msg.tensor + 18, msg.box};
    EXPECT_EQ(other[r], layout::MessageList(round));
  }
}

TEST(Plans, ranks_on_other_hosts_get_moves_of_their_own) {
  const Model model = llama(4, 32, 4, 2, 48, 0);
  const auto from = stored(model, strategy(1, 2, 2, 4)), to = stored(model, strategy(2, 1, 2, 4));
  const MovePlan plan = plan_switch(model.units, from, {}, to, {{0, 1, 2, 2}, {}}, Planner::relay);
  EXPECT_NE(plan.units[0].moves.rounds[0].pattern(), plan.units[2].moves.rounds[0].pattern());
}

/// The maps of tensors of 8 elements, which the ranks hold whole; each is a unit of its own.
ShardMap whole_on(const std::vector<int>& ranks) {
  ShardMap map{layout::plain({8}), 1, {}};
  for (const int rank : ranks) map.shards.push_back({rank, 0, {1, {0}, {8}}});
  return map;
}

/// Sources of the messages of a unit's first round that are not local, by destination.
std::map<int, std::set<int>> senders(const UnitMoves& unit) {
  std::map<int, std::set<int>> by_receiver;
  for (const layout::Msg& msg : unit.moves.rounds[0])
    if (msg.src != msg.dst) by_receiver[msg.dst].insert(msg.src);
  return by_receiver;
}

TEST(Plans, home_sends_only_to_hosts_that_the_previous_strategy_does_not_reach) {
  const ShardMap previous = whole_on({0}), home = whole_on({1, 2}), to = whole_on({3});
  const cluster::Cluster one = cluster::uniform(1, 4), two{{0, 1, 1, 1}, {}};
  for (const Planner planner : kAll)
    EXPECT_EQ(senders(plan_switch({{{0}}}, {previous}, {home}, {to}, one, planner).units[0]),
              (std::map<int, std::set<int>>{{3, {0}}}));
  for (const Planner planner : {Planner::relay, Planner::greedy})
    EXPECT_FALSE(senders(plan_switch({{{0}}}, {previous}, {home}, {to}, two, planner).units[0]).at(3).contains(0));
}

TEST(Plans, a_rank_keeps_what_it_has_of_home) {
  for (const Planner planner : kAll) {
    const MovePlan plan =
        plan_switch({{{0}}}, {whole_on({0})}, {whole_on({1, 2})}, {whole_on({1})}, cluster::uniform(1, 3), planner);
    EXPECT_THAT(senders(plan.units[0]), testing::IsEmpty());
  }
}

TEST(Plans, home_alone_shares_what_its_copies_send) {
  const MovePlan plan =
      plan_switch({{{0}}}, {}, {whole_on({0, 1, 2})}, {whole_on({3})}, cluster::uniform(1, 4), Planner::relay);
  EXPECT_EQ(senders(plan.units[0]), (std::map<int, std::set<int>>{{3, {0, 1, 2}}}));
}

TEST(Plans, without_any_copy_name_the_tensor) {
  EXPECT_EQ(message_of<InternalError>(
                [&] { plan_switch({{{0}}}, {}, {}, {whole_on({0})}, cluster::uniform(1, 1), Planner::relay); }),
            "tensor 0: box [0,8) is wanted by rank 0 and held by none");
}

TEST(Plans, of_greedy_count_what_ranks_have_sent_for_earlier_units) {
  const MovePlan plan = plan_switch({{{0}}, {{1}}}, {whole_on({0}), whole_on({0, 1})}, {},
                                    {whole_on({2}), whole_on({2})}, cluster::uniform(1, 3), Planner::greedy);
  EXPECT_EQ(senders(plan.units[1]), (std::map<int, std::set<int>>{{2, {1}}}));
  const MovePlan other = plan_switch({{{0}}, {{1}}}, {whole_on({0}), whole_on({1, 2})}, {},
                                     {whole_on({3}), whole_on({3})}, cluster::uniform(1, 4), Planner::greedy);
  EXPECT_EQ(senders(other.units[1]), (std::map<int, std::set<int>>{{3, {1}}})) << "rank 1 has sent nothing";
}

/// Two units of one tensor each, whose second maps differ: they share no messages.
void expect_other_moves(const ShardMap& grad, const ShardMap& other, const ShardMap& owner) {
  const MovePlan plan =
      plan_reduce({{{0}}, {{1}}}, {grad, other}, {owner, owner}, cluster::uniform(1, 4), Planner::relay);
  EXPECT_NE(plan.units[0].moves.rounds[0].pattern(), plan.units[1].moves.rounds[0].pattern());
  EXPECT_NO_THROW(verify_reduce(plan, {grad, other}, {owner, owner}));
}

TEST(Plans, units_whose_maps_differ_only_in_boxes_or_partials_share_no_messages) {
  const auto map = [](std::vector<layout::Shard> shards) { return ShardMap{layout::plain({8}), 2, std::move(shards)}; };
  const auto box = [](i64 lo, i64 hi) { return layout::Box{1, {lo}, {hi}}; };
  const ShardMap owner = whole_on({3});
  expect_other_moves(map({{0, 0, box(0, 8)}, {1, 1, box(0, 4)}, {2, 1, box(4, 8)}}),
                     map({{0, 0, box(0, 8)}, {1, 1, box(0, 5)}, {2, 1, box(5, 8)}}), owner);
  expect_other_moves(map({{0, 0, box(0, 8)}, {1, 0, box(0, 8)}, {2, 1, box(0, 8)}}),
                     map({{0, 0, box(0, 8)}, {1, 1, box(0, 8)}, {2, 1, box(0, 8)}}), owner);
}

TEST(Plans, a_unit_that_lacks_a_partial_is_named_beside_one_that_has_all) {
  ShardMap grad = layout::as_partials({whole_on({0}), whole_on({1})}), other = grad;
  other.partials = 3;
  const std::vector<ShardMap> owners(2, whole_on({2}));
  EXPECT_EQ(message_of<InternalError>([&] {
              plan_reduce({{{0}}, {{1}}}, {grad, other}, owners, cluster::uniform(1, 3), Planner::relay);
            }),
            "tensor 1: box [0,8) has 2 of 3 partials");
}

TEST(Plans, shared_messages_under_wrong_names_are_found) {
  const Model model = llama(4, 32, 4, 2, 48, 0);
  const auto from = stored(model, strategy(1, 2, 2, 4)), to = stored(model, strategy(2, 1, 2, 4));
  MovePlan plan = plan_switch(model.units, from, {}, to, cluster::uniform(2, 2), Planner::relay);
  ASSERT_NO_THROW(verify_switch(plan, from, {}, to));
  layout::MessageList& round = plan.units[2].moves.rounds[0];
  round = {round.pattern(), plan.units[0].moves.rounds[0].ranks(), round.tensors()};
  EXPECT_THROW(verify_switch(plan, from, {}, to), InternalError);
}

/// Random strategies of a small model: regular, heterogeneous pipelines side by side, and unused ranks.
class RandomStrategies {
 public:
  explicit RandomStrategies(unsigned seed) : random_(seed) {}

  int below(int n) { return random_.below(n); }

  StrategySpec draw(int ranks, int layers) {
    StrategySpec all;
    int first = below(std::max(1, ranks / 2));
    do {
      const int left = ranks - first, pp = 1 + below(std::min(left, layers));
      std::vector<int> starts{0};
      for (int p = 1; p < pp; ++p) starts.push_back(starts.back() + 1 + below(layers - starts.back() - (pp - p)));
      starts.push_back(layers);
      const int dp = 1 + below(std::max(1, left / pp / 2));
      for (int p = 0; p < pp; ++p) {
        const int tp = 1 + below(std::max(1, left / pp / dp));
        StageSpec stage{std::vector<int>(static_cast<size_t>(dp * tp)), dp, tp, starts[static_cast<size_t>(p)],
                        starts[static_cast<size_t>(p) + 1]};
        std::iota(stage.ranks.begin(), stage.ranks.end(), first);
        first += dp * tp;
        all.push_back(stage);
      }
    } while (first < ranks && below(3) == 0);
    return all;
  }

  cluster::Cluster hosts(int ranks) {
    cluster::Cluster cluster;
    for (int host = 0; cluster.ranks() < ranks; ++host) {
      cluster.host.insert(cluster.host.end(), static_cast<size_t>(1 + below(std::min(5, ranks - cluster.ranks()))),
                          host);
    }
    return cluster;
  }

 private:
  layout::RandomMaps random_;
};

/// All units' rounds of a plan side by side.
layout::Rounds flat(const MovePlan& plan) {
  const auto place = [](const layout::Msg& msg) { return std::tie(msg.src, msg.dst, msg.tensor, msg.box.lo); };
  layout::Rounds all;
  for (const UnitMoves& unit : plan.units) {
    EXPECT_EQ(unit.unit, &unit - plan.units.data());
    all.rounds.resize(std::max(all.rounds.size(), unit.moves.rounds.size()));
    for (size_t r = 0; r < unit.moves.rounds.size(); ++r) {
      EXPECT_FALSE(unit.moves.rounds[r].empty());
      EXPECT_TRUE(std::ranges::is_sorted(unit.moves.rounds[r].pattern()->messages(), {}, place));
      all.rounds[r].insert(all.rounds[r].end(), unit.moves.rounds[r].begin(), unit.moves.rounds[r].end());
    }
  }
  return all;
}

void expect_switch(const Model& model, const std::vector<ShardMap>& from, const std::vector<ShardMap>& compute_copy,
                   const std::vector<ShardMap>& to, const cluster::Cluster& hosts, Planner planner) {
  const MovePlan plan = plan_switch(model.units, from, compute_copy, to, hosts, planner);
  ASSERT_NO_THROW(verify_switch(plan, from, compute_copy, to));
  const layout::Rounds moves = flat(plan);
  for (size_t t = 0; t < to.size(); ++t) {
    std::vector<ShardMap> sources;
    if (!from.empty()) sources.push_back(from[t]);
    if (!compute_copy.empty()) sources.push_back(compute_copy[t]);
    const ShardMap source = layout::as_copies(sources);
    ASSERT_TRUE(layout::holds_values(to[t], layout::replay_copy(moves, static_cast<int>(t), source, to[t]),
                                     static_cast<int>(t), 1))
        << "tensor " << t;
  }
  const i64 crossed = traffic(plan, hosts, 1).links.inter_host,
            bound = inter_host_bound_bytes(from, compute_copy, to, hosts, 1);
  if (planner == Planner::relay) {
    ASSERT_EQ(crossed, bound);
  } else {
    ASSERT_GE(crossed, bound);
  }
}

void expect_reduce(const Model& model, const std::vector<ShardMap>& grad, const std::vector<ShardMap>& owners,
                   const cluster::Cluster& hosts, Planner planner) {
  const MovePlan plan = plan_reduce(model.units, grad, owners, hosts, planner);
  ASSERT_TRUE(plan.sum);
  ASSERT_NO_THROW(verify_reduce(plan, grad, owners));
  const layout::Rounds moves = flat(plan);
  for (size_t t = 0; t < owners.size(); ++t) {
    const auto sums = layout::replay_sum(moves, static_cast<int>(t), grad[t], owners[t]);
    ASSERT_TRUE(layout::holds_values(owners[t], sums, static_cast<int>(t), grad[t].partials)) << "tensor " << t;
  }
}

TEST(PlanProperties, parameters_are_the_same_after_any_switch_and_back) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomStrategies random(seed);
    const int ranks = 2 + random.below(11), layers = 3;
    const Model model = llama(layers, 8, 4, 2, 12, 10);
    const cluster::Cluster hosts = random.hosts(ranks);
    const auto a = stored(model, random.draw(ranks, layers)), b = stored(model, random.draw(ranks, layers));
    const auto compute_copy = home(model, random.draw(ranks, layers));
    for (const Planner planner : kAll) {
      expect_switch(model, {}, compute_copy, a, hosts, planner);
      expect_switch(model, a, compute_copy, b, hosts, planner);
      expect_switch(model, b, {}, a, hosts, planner);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST(PlanProperties, reduced_gradients_are_the_sums_of_all_partials) {
  for (unsigned seed = 100; seed < 160; ++seed) {
    SCOPED_TRACE(seed);
    RandomStrategies random(seed);
    const int ranks = 2 + random.below(11), layers = 3;
    const Model model = llama(layers, 8, 4, 2, 12, 10);
    const cluster::Cluster hosts = random.hosts(ranks);
    const auto owners = home(model, random.draw(ranks, layers));
    const auto grad = gradients(model, random.draw(ranks, layers));
    for (const Planner planner : kAll) {
      expect_reduce(model, grad, owners, hosts, planner);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST(PlanProperties, any_maps_of_copies_and_partials_can_be_switched_and_reduced) {
  for (unsigned seed = 200; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    layout::RandomMaps random(seed);
    RandomStrategies hosts_of(seed);
    const layout::Shape shape = random.shape();
    const Model model{1, {}, {{{0}}}};
    const cluster::Cluster hosts = hosts_of.hosts(12);
    const ShardMap from = random.map(shape, 12, false), to = random.map(shape, 12, false),
                   grad = random.map(shape, 12, true);
    const ShardMap owners = layout::one_owner(random.map(shape, 12, false));
    for (const Planner planner : kAll) {
      expect_switch(model, {from}, {owners}, {to}, hosts, planner);
      expect_reduce(model, {grad}, {owners}, hosts, planner);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST(PlanProperties, a_relayed_reduce_crosses_no_more_than_direct_sends) {
  for (unsigned seed = 400; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomStrategies random(seed);
    const Model model = llama(3, 8, 4, 2, 12, 10);
    const cluster::Cluster hosts = random.hosts(12);
    const auto owners = home(model, random.draw(12, 3)), grad = gradients(model, random.draw(12, 3));
    const i64 relayed =
        traffic(plan_reduce(model.units, grad, owners, hosts, Planner::relay), hosts, 1).links.inter_host;
    EXPECT_LE(relayed,
              traffic(plan_reduce(model.units, grad, owners, hosts, Planner::greedy), hosts, 1).links.inter_host);
  }
}

TEST(PlanProperties, all_pairs_of_published_presets_switch_there_and_back) {
  const Model model = llama(4, 32, 16, 16, 64, 64);  // scaled down: four layers, sixteen heads
  struct Preset {
    int ranks;
    std::vector<std::array<int, 3>> strategies;
  };
  const Preset presets[] = {{8, {{1, 4, 2}, {8, 1, 1}, {2, 2, 2}, {4, 2, 1}, {1, 8, 1}}},
                            {16, {{2, 4, 2}, {16, 1, 1}, {4, 4, 1}, {8, 2, 1}, {2, 8, 1}, {4, 2, 2}}},
                            {32, {{1, 16, 2}, {4, 2, 4}, {2, 8, 2}, {4, 4, 2}}}};
  for (const Preset& preset : presets) {
    const cluster::Cluster hosts = cluster::uniform(preset.ranks / 8, 8);
    const auto spec = [&](const std::array<int, 3>& s) { return strategy(s[0], s[1], s[2], model.layers); };
    const auto owners = home(model, spec(preset.strategies[0]));
    for (const auto& a : preset.strategies) {
      expect_reduce(model, gradients(model, spec(a)), owners, hosts, Planner::relay);
      for (const auto& b : preset.strategies)
        expect_switch(model, stored(model, spec(a)), owners, stored(model, spec(b)), hosts, Planner::relay);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

double milliseconds_since(std::clock_t start) {
  return 1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// Prints processor times; no test depends on them.
void print_speed(const char* name, const Model& model, const cluster::Cluster& hosts, const StrategySpec& a,
                 const StrategySpec& b, bool with_home) {
  const auto from = stored(model, a), to = stored(model, b), owners = home(model, a);
  for (const Planner planner : {Planner::relay, Planner::greedy}) {
    const std::clock_t start = std::clock();
    const MovePlan moves =
        plan_switch(model.units, from, with_home ? owners : std::vector<ShardMap>{}, to, hosts, planner);
    const double spent = milliseconds_since(start);
    size_t messages = 0;
    for (const UnitMoves& unit : moves.units) {
      for (const auto& round : unit.moves.rounds) messages += round.size();
    }
    fmt::print("{} {}: switch {:.1f} ms ({} messages)\n", name, name_of(planner), spent, messages);
    EXPECT_EQ(moves.units.size(), model.units.size());
  }
}

TEST(PlanSpeed, of_reductions_is_printed) {
  const Model model = llama_7b();
  const auto owners = home(model, strategy(2, 4, 4, 32)), grad = gradients(model, strategy(32, 1, 1, 32));
  const std::clock_t start = std::clock();
  const MovePlan reduce = plan_reduce(model.units, grad, owners, cluster::uniform(4, 8), Planner::relay);
  fmt::print("7b, 32 ranks, 32,1,1 to home on 2,4,4: reduce {:.1f} ms\n", milliseconds_since(start));
  EXPECT_EQ(reduce.units.size(), model.units.size());
}

TEST(PlanSpeed, of_switches_is_printed) {
  print_speed("7b, 32 ranks, 2,4,4 to 32,1,1", llama_7b(), cluster::uniform(4, 8), strategy(2, 4, 4, 32),
              strategy(32, 1, 1, 32), true);
  if (!cases(true, false)) return;
  print_speed("32b, 1024 ranks, 32,16,2 to 128,2,4", llama_32b(), cluster::uniform(128, 8), strategy(32, 16, 2, 60),
              strategy(128, 2, 4, 60), false);
  print_speed("32b, 1024 ranks, 8,16,8 to 128,8,1, with home", llama_32b(), cluster::uniform(128, 8),
              strategy(8, 16, 8, 60), strategy(128, 8, 1, 60), true);
}

}  // namespace
}  // namespace switchyard::switching
