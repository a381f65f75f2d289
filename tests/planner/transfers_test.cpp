#include "planner/transfers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "../cases.hpp"
#include "../compiler/small_models.hpp"
#include "cost/exchange.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

constexpr double kInside = 1e9, kAcross = 1e8;  // bytes per second

config::ModelConfig model_with(int kv_heads) {
  config::ModelConfig model = model_of(4, 64, 128);
  model.kv_heads = kv_heads;
  return model;
}

// Links without latency, on which messages of all sizes go equally fast. adapters: of a host.
struct Case {
  explicit Case(int hosts, int devices, int devices_of_adapter = 1, int kv_heads = 8)
      : units(model_with(kv_heads), precision_from("bf16"), [&] {
          cluster::Hardware hardware = hardware_of(hosts, devices, 0, kInside, kAcross);
          hardware.intra_host = {{0}, {kInside}, 1, {}};
          hardware.inter_host = cluster::LinkClass{{0}, {kAcross}, devices_of_adapter, {}};
          return hardware;
        }()) {}
  UnitCosts units;
  Transfers transfers{units};
};

// Embedding and head, and the final norm; of a layer four products of attention, three of the ffn, two norms.
constexpr double kLayer = 4 * 64 * 64 + 3 * 64 * 192 + 2 * 64, kModel = 2 * 8192 + 64 + 4 * kLayer;

Placement in_chunks(schedule::Placement path) {
  Placement placement{1, outer(1), 2};
  placement.chunks = 2;
  placement.path = path;
  return placement;
}

TEST(Transfers, nothing_moves_between_equal_placements) {
  Case one(1, 4);
  for (const Placement& p : {Placement{4, outer(1), 1}, Placement{1, outer(4), 1}, Placement{2, outer(1), 2}})
    EXPECT_EQ(one.transfers.moves(p, p, {{4, outer(1), 1}}), 0);
}

TEST(Transfers, a_replica_alone_is_at_home_with_itself) {
  Case one(1, 4);
  for (const Placement& p : {Placement{1, outer(1), 1}, Placement{1, outer(4), 1}, Placement{1, outer(1), 4},
                             Placement{1, outer(2), 2}, in_chunks(schedule::Placement::loop)}) {
    EXPECT_EQ(one.transfers.reduce(p, {p}), 0) << to_string(p);
    EXPECT_EQ(one.transfers.moves(std::nullopt, p, {p}), 0) << to_string(p);
  }
}

TEST(Transfers, replicas_lack_what_the_others_have_at_home) {
  Case one(1, 2);
  EXPECT_NEAR(one.transfers.reduce({2, outer(1), 1}, {{2, outer(1), 1}}), kModel / 2 * 4 / kInside, 1e-12)
      << "gradients are fp32";
  EXPECT_NEAR(one.transfers.moves(std::nullopt, {2, outer(1), 1}, {{2, outer(1), 1}}), kModel / 2 * 2 / kInside, 1e-12)
      << "parameters are bf16";
}

TEST(Transfers, copies_of_the_phase_before_are_used) {
  Case one(1, 2);
  EXPECT_EQ(one.transfers.moves(Placement{2, outer(1), 1}, {1, outer(2), 1}, {{2, outer(1), 1}}), 0)
      << "a replica has every part";
  EXPECT_NEAR(one.transfers.moves(Placement{1, outer(2), 1}, {2, outer(1), 1}, {{1, outer(2), 1}}),
              kModel / 2 * 2 / kInside, 1e-12);
}

TEST(Transfers, stages_take_the_time_of_the_fuller_one) {
  Case one(1, 4);
  EXPECT_NEAR(one.transfers.reduce({2, outer(1), 2}, {{2, outer(1), 2}}), (8192 + 64 + 2 * kLayer) / 2 * 4 / kInside,
              1e-12);
}

TEST(Transfers, a_rank_that_sends_is_busy_as_well) {
  Case one(1, 2);
  EXPECT_NEAR(one.transfers.moves(std::nullopt, {1, outer(1), 2}, {{1, outer(2), 1}}), kModel / 2 * 2 / kInside, 1e-12)
      << "each has a half of every unit";
  Case four(1, 4);
  EXPECT_NEAR(four.transfers.moves(std::nullopt, {4, outer(1), 1}, {{1, outer(1), 1}}), 3 * kModel * 2 / kInside, 1e-12)
      << "one sends to three";
}

// The first stage is on ranks 0 and 2, the second one on 1 and 3; layers are at home on one rank each.
TEST(Transfers, a_rank_that_waits_makes_others_wait) {
  Case one(1, 4);
  EXPECT_NEAR(one.transfers.moves(std::nullopt, {2, outer(1), 2, config::Inside::pipeline}, {{1, outer(1), 4}}),
              (kModel + 2 * kLayer) * 2 / kInside, 1e-12)
      << "the inner layers are sent to two ranks, and rank 2 sends its layer when it has got those of the first stage";
}

TEST(Transfers, chunks_are_on_the_stages_of_their_path) {
  Case one(1, 2);
  const Placement loop = in_chunks(schedule::Placement::loop), v = in_chunks(schedule::Placement::v);
  EXPECT_NEAR(one.transfers.moves(Placement{1, outer(1), 2}, loop, {{1, outer(1), 2}}), 2 * kLayer * 2 / kInside, 1e-12)
      << "the second and the third layer change places";
  EXPECT_NEAR(one.transfers.moves(Placement{1, outer(1), 2}, v, {{1, outer(1), 2}}),
              (8192 + 64 + 2 * kLayer) * 2 / kInside, 1e-12)
      << "the second, the last, and the head";
}

TEST(Transfers, what_comes_from_another_host_crosses_once_and_is_passed_on) {
  Case two(2, 2), shared(2, 2, 2);
  const double inside = 0.5 * kModel * 4 / kInside, across = 0.5 * kModel * 4 / kAcross;
  EXPECT_NEAR(two.transfers.reduce({4, outer(1), 1}, {{4, outer(1), 1}}), across / 2 + inside, 1e-9 * across)
      << "two adapters";
  EXPECT_NEAR(shared.transfers.reduce({4, outer(1), 1}, {{4, outer(1), 1}}), across + inside, 1e-9 * across)
      << "one adapter";
  EXPECT_GT(two.transfers.reduce({4, outer(1), 1}, {{4, outer(1), 1}}),
            Case(1, 4).transfers.reduce({4, outer(1), 1}, {{4, outer(1), 1}}));
}

TEST(Transfers, a_host_takes_over_the_adapters_of_those_that_need_it_and_sends_over_those_that_have_it) {
  Case two(2, 4);
  const double all = kModel * 2 / kAcross;
  EXPECT_NEAR(two.transfers.moves(std::nullopt, {8, outer(1), 1}, {{1, outer(4), 1}}),
              all / 4 + 0.75 * kModel * 2 / kInside, 1e-9 * all)
      << "four to four";
  EXPECT_NEAR(two.transfers.moves(std::nullopt, {5, outer(1), 1}, {{1, outer(4), 1}}),
              all + 0.75 * kModel * 2 / kInside, 1e-9 * all)
      << "four to one";
}

TEST(Transfers, a_host_sends_to_one_after_the_other) {
  Case three(3, 1);
  EXPECT_NEAR(three.transfers.moves(std::nullopt, {3, outer(1), 1}, {{1, outer(1), 1}}), 2 * kModel * 2 / kAcross,
              1e-12);
}

TEST(Transfers, slices_of_many_holders_are_messages_that_each_take_their_latency_at_their_share_of_the_bandwidth) {
  constexpr int kHosts = 8;
  cluster::Hardware hardware = hardware_of(kHosts, 1, 0, kInside, kAcross);
  hardware.inter_host = cluster::LinkClass{{1e-4}, {kAcross}, 1, {{{1e3, 0.2}, {1e5, 0.9}}}};
  const UnitCosts units(model_of(4, 64, 128), precision_from("bf16"), hardware);
  const Transfers transfers(units);
  double expected = 0;
  for (const double elements : {8192.0, kLayer, kLayer, kLayer, kLayer, 8256.0}) {
    std::vector<cost::Message> messages;
    for (int from = 0; from < kHosts; ++from)
      for (int to = 0; to < kHosts; ++to) messages.push_back({from, to, static_cast<i64>(elements * 2 / kHosts)});
    expected += cost::exchange_over(hardware, hardware.placement(), messages).time.count;
  }
  const Placement copies{kHosts, outer(1), 1};
  EXPECT_NEAR(transfers.moves(std::nullopt, copies, {copies}), expected, 1e-9 * expected);
}

TEST(Transfers, a_plan_of_one_phase_takes_what_moves_before_and_after_it) {
  Case two(2, 2);
  for (const Placement& p : {Placement{4, outer(1), 1}, Placement{2, outer(2), 1}, Placement{2, outer(1), 2}})
    for (const double last_backward : {0.0, 1e-5, 50.0}) {
      double least = std::numeric_limits<double>::infinity();
      for (const int zero : {0, 1}) {
        Timeline timeline;
        timeline.add(two.transfers.phase(std::nullopt, p, {p, zero}, 100, last_backward));
        least = std::min(least, timeline.reduced + two.transfers.finish({p, zero}) - 100);
      }
      EXPECT_NEAR(two.transfers.beyond_one_phase(p, last_backward) + two.transfers.least_finish(), least, 1e-9)
          << to_string(p);
    }
}

// Eight copies send 7 of 8 parts of all gradients over their own adapters, wherever these are at home.
TEST(Transfers, wherever_home_is_gradients_take_no_less_than_the_least) {
  Case hosts(8, 1);
  const Placement copies{8, outer(1), 1};
  EXPECT_NEAR(hosts.transfers.least_reduce(copies), 4 * kModel * 7 / 8 / kAcross, 1e-9);
  EXPECT_NEAR(hosts.transfers.reduce(copies, {copies}), 4 * kModel * 7 / 8 / kAcross, 1e-9);

  Case two(2, 4, 2);
  std::vector<Placement> all;
  for (const int zero : {1, 2, 3})
    for (const auto& [dp, wide, pp] : {std::tuple(8, 1, 1), {4, 2, 1}, {2, 4, 1}, {1, 8, 1}, {2, 2, 2}, {2, 1, 4}})
      for (const config::Inside inside : {config::Inside::data, config::Inside::pipeline}) {
        Placement p{dp, outer(wide), pp, inside};
        p.zero = zero;
        all.push_back(p);
        p.head_layers = pp > 1 ? 1 : 0;
        all.push_back(p);
      }
  int crossing = 0;
  for (const Placement& from : all) {
    const double least = two.transfers.least_reduce(from);
    if (least > 0) ++crossing;
    for (const Placement& home : all)
      EXPECT_LE(least, two.transfers.reduce(from, {home}) * (1 + 1e-9)) << to_string(from) << " to " << to_string(home);
    EXPECT_LE(two.transfers.beyond_phase(from, false), two.transfers.beyond_phase(from, true) * (1 + 1e-9));
  }
  EXPECT_GT(crossing, 4);
  EXPECT_EQ(Case(1, 8).transfers.least_reduce({8, outer(1), 1}), 0) << "hosts have all of home";
}

TEST(Transfers, plans_take_no_less_than_what_their_phases_add_beyond_their_work) {
  Case two(2, 2);
  const std::vector<Placement> all = {{4, outer(1), 1}, {2, outer(2), 1}, {2, outer(1), 2}, {1, outer(2), 2}};
  for (const double work : {0.0, 1e-3, 1e-1})
    for (const Placement& first : all)
      for (const Placement& second : all)
        for (const bool home_is_first : {false, true}) {
          const Home home{home_is_first ? first : second, 1};
          Timeline timeline;
          timeline.add(two.transfers.phase(std::nullopt, first, home, work, work / 4));
          timeline.add(two.transfers.phase(first, second, home, work, work / 4));
          EXPECT_GE(timeline.reduced + two.transfers.finish(home) + 1e-9,
                    2 * work + two.transfers.beyond_phase(first, home_is_first) +
                        two.transfers.beyond_phase(second, !home_is_first) + two.transfers.least_finish())
              << to_string(first) << ", " << to_string(second);
        }
}

// Seconds in which all hosts, of one rank each, receive what the compiled layouts of the strategy to move to need.
double seconds_by_layouts(const compiler::Plans& plans, int from, int to) {
  double seconds = 0;
  for (const switching::UnitMoves& unit : plans.moves(from, to).units) {
    std::vector<double> received(static_cast<size_t>(plans.cluster().ranks()), 0);
    for (const layout::MessageList& round : unit.moves.rounds)
      for (const layout::Msg& m : round)
        if (m.src != m.dst) received[static_cast<size_t>(m.dst)] += static_cast<double>(2 * m.box.elements());
    std::set<int> holders;
    const auto add = [&](const layout::ShardMap& map) {
      for (const layout::Shard& shard : map.shards) holders.insert(shard.rank);
    };
    for (const int tensor : plans.units()[static_cast<size_t>(unit.unit)].tensors) {
      add(plans.home()[static_cast<size_t>(tensor)]);
      if (from >= 0) add(plans.strategies()[static_cast<size_t>(from)].maps.stored[static_cast<size_t>(tensor)]);
    }
    const double all = std::accumulate(received.begin(), received.end(), 0.0);
    seconds += std::max(std::ranges::max(received), all / static_cast<double>(holders.size())) / kAcross;
  }
  return seconds;
}

// The next phase has one stage, so that units arrive one after the other. Norms, of which tensor parallel ranks hold
// copies, count as cut.
TEST(Transfers, ranks_receive_what_they_lack_in_the_layouts_of_strategies) {
  constexpr int kRanks = 8;
  std::mt19937 random(5);
  for (const int kv_heads : {8, 2}) {
    const Case hosts(kRanks, 1, 1, kv_heads);
    const config::ModelConfig& model = hosts.units.model();
    std::vector<Placement> placements;
    for (const Shape& shape : shapes(model, kRanks, {}))
      for (std::optional<Placement> p = shape.placement; p; p = cut_further(*p)) placements.push_back(*p);
    const auto any = [&] { return placements[random() % placements.size()]; };
    for (int n = 0; n < cases(40, 10); ++n) {
      const Placement home = any(), previous = any();
      Placement next = any();
      while (next.pp > 1) next = any();
      SCOPED_TRACE(to_string(home) + ", then " + to_string(previous) + ", then " + to_string(next));
      std::vector<config::Strategy> strategies;
      for (const Placement& p : {home, previous, next})
        strategies.push_back(strategy_of({.placement = p}, model.layers, 4096));
      const compiler::Plans plans(compiler::training_graph(model), strategies, 0, cluster::uniform(kRanks, 1),
                                  switching::Planner::relay);
      for (const int from : {-1, 1}) {
        const double expected = seconds_by_layouts(plans, from, 2);
        EXPECT_NEAR(hosts.transfers.moves(from < 0 ? std::nullopt : std::optional(previous), next, {home, 1}), expected,
                    0.02 * expected);
      }
    }
  }
}

TEST(Transfers, a_device_alone_on_its_host_passes_nothing_on) {
  Case two(2, 1);
  EXPECT_NEAR(two.transfers.reduce({2, outer(1), 1}, {{2, outer(1), 1}}), kModel / 2 * 4 / kAcross, 1e-12);
}

TEST(Transfers, the_update_is_shared_by_home_and_the_norm_agreed_by_halves) {
  Case one(1, 4);
  const double all = one.transfers.finish({{1, outer(1), 1}}), shared = one.transfers.finish({{4, outer(1), 1}});
  EXPECT_NEAR(all, kModel * (8 * 4 + 2 + 4) / 1e12, 1e-9 * all)
      << "master, two moments, gradient, read and written, and the compute copy; gradients are read for the norm";
  EXPECT_NEAR(shared, all / 4, 1e-9 * all);
  Case slow(1, 4);
  cluster::Hardware hardware = slow.units.hardware();
  hardware.intra_host.latency = {1};
  const UnitCosts units(slow.units.model(), slow.units.precision(), hardware);
  EXPECT_NEAR(Transfers(units).finish({{4, outer(1), 1}}), 4, 1e-3) << "two halvings, there and back";
}

// The times of AdamW, which the profile's device computes slower than its memory moves bytes, and of the norm.
TEST(Transfers, an_update_takes_what_was_measured) {
  Case one(1, 4);
  cluster::Hardware hardware = one.units.hardware();
  hardware.device.operators[DType::f32]["adamw"] = {{{1, 1, 34, 34e-10}, {1000, 1, 34, 34e-7}}, {}};
  hardware.device.operators[DType::f32]["sum_of_squares"] = {{{1, 1, 4, 4e-9}}, {}};
  const UnitCosts units(one.units.model(), one.units.precision(), hardware);
  const Transfers transfers(units);
  const double shared = kModel / 4 * (34e-10 + 4e-9);
  EXPECT_NEAR(transfers.finish({{4, outer(1), 1}}), shared, 1e-9 * shared);
  EXPECT_NEAR(transfers.least_finish(), shared, 1e-9 * shared);
}

TEST(Transfers, no_home_is_updated_sooner_than_one_of_equal_shares_on_all_ranks) {
  Case one(2, 4);
  const double least = one.transfers.least_finish();
  for (const Placement& p : {Placement{8, outer(1), 1}, Placement{4, outer(2), 1}, Placement{2, outer(2), 2},
                             Placement{1, outer(1), 2}, Placement{1, outer(2), 2}})
    for (int zero = 0; zero < 2; ++zero) EXPECT_LE(least, one.transfers.finish({p, zero}) * (1 + 1e-12));
  EXPECT_NEAR(least, one.transfers.finish({{8, outer(1), 1}}), 0.01 * least);
}

TEST(Transfers, copies_at_home_lack_nothing_and_wait_for_the_sums) {
  Case one(1, 2);
  const Home copies{{2, outer(1), 1}, 0}, shares{{2, outer(1), 1}, 1};
  EXPECT_EQ(one.transfers.moves(std::nullopt, {2, outer(1), 1}, copies), 0);
  EXPECT_EQ(one.transfers.moves(Placement{1, outer(2), 1}, {1, outer(1), 2}, copies), 0) << "whatever ran before";
  EXPECT_GT(one.transfers.moves(Placement{1, outer(2), 1}, {1, outer(1), 2}, shares), 0);
  EXPECT_EQ(one.transfers.reduce({2, outer(1), 1}, copies), one.transfers.reduce({2, outer(1), 1}, shares))
      << "each sum is made once";
  EXPECT_NEAR(one.transfers.finish(copies),
              kModel / 2 * 4 / kInside + 2 * one.transfers.finish(shares) - kModel / 2 * 4 / 1e12, 1e-12)
      << "every copy is updated; the norm is that of the sums, each on one rank";
}

TEST(Transfers, posts_are_those_of_the_ranks) {
  for (const config::Inside inside : {config::Inside::data, config::Inside::pipeline}) {
    const Placement p{2, outer(2), 3, inside};
    for (int rank = 0; rank < p.ranks(); ++rank) {
      const Post post = post_of(p, rank).value();
      EXPECT_EQ(first_rank(p, post.replica, post.stage) + post.place, rank);
    }
    EXPECT_FALSE(post_of(p, p.ranks()));
  }
}

}  // namespace
}  // namespace switchyard::planner
