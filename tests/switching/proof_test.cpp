// Plans with a fault are refused, and the fault is found in the unit that has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "../layout/replay.hpp"
#include "../message_of.hpp"
#include "base/errors.hpp"
#include "model_maps.hpp"

namespace switchyard::switching {
namespace {

using layout::MessageList;
using layout::Msg;
using layout::ShardMap;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// A plan with what it is proven by.
struct Proven {
  std::string name;
  MovePlan plan;
  std::vector<ShardMap> from, compute_copy, to;

  std::string error() const {
    return message_of<InternalError>([&] {
      if (plan.sum)
        verify_reduce(plan, from, to);
      else
        verify_switch(plan, from, compute_copy, to);
    });
  }
};

Proven switched(const std::string& name, const std::vector<UnitMaps>& units, const std::vector<ShardMap>& from,
                const std::vector<ShardMap>& compute_copy, const std::vector<ShardMap>& to,
                const cluster::Cluster& cluster, Planner planner) {
  return {fmt::format("{} {}", name, config::name_of(planner)),
          plan_switch(units, from, compute_copy, to, cluster, planner), from, compute_copy, to};
}

Proven reduced(const std::string& name, const std::vector<UnitMaps>& units, const std::vector<ShardMap>& grad,
               const std::vector<ShardMap>& owners, const cluster::Cluster& cluster, Planner planner) {
  return {fmt::format("{} {}", name, config::name_of(planner)),
          plan_reduce(units, grad, owners, cluster, planner),
          grad,
          {},
          owners};
}

/// Switches and reductions of four units, three of them with several tensors, on two hosts, by each planner.
std::vector<Proven> plans() {
  const Model model = llama(2, 8, 4, 2, 16, 16);
  const cluster::Cluster hosts = cluster::uniform(2, 2);
  const StrategySpec wide = strategy(2, 2, 1, 2), deep = strategy(1, 2, 2, 2);
  std::vector<Proven> all;
  for (const Planner planner : {Planner::relay, Planner::greedy, Planner::first, Planner::round_robin}) {
    all.push_back(switched("from one strategy to another,", model.units, stored(model, deep), home(model, wide),
                           stored(model, wide), hosts, planner));
    all.push_back(switched("from home,", model.units, {}, home(model, deep), stored(model, wide), hosts, planner));
    all.push_back(reduced("to home on another strategy,", model.units, gradients(model, wide), home(model, deep), hosts,
                          planner));
    all.push_back(reduced("to home on the same strategy,", model.units, gradients(model, wide), home(model, wide),
                          hosts, planner));
  }
  return all;
}

using Messages = std::vector<Msg>;

Messages messages_of(const MessageList& round) {
  const auto messages = round.pattern()->messages();
  return {messages.begin(), messages.end()};
}

/// The round under the same names with other messages.
MessageList with(const MessageList& round, Messages messages) {
  return {std::make_shared<const layout::MessagePattern>(std::move(messages)), round.ranks(), round.tensors()};
}

/// Changes message `at` of a round; false: the change makes no sense there.
using Damage = std::function<bool(Messages& messages, size_t at)>;

/// Whether the plan brings every owner the sum of all partials, replayed on numbers: what else is added, where nobody
/// reads it, does no harm.
bool sums_are_right(const Proven& proven) {
  if (!proven.plan.sum) return false;
  layout::Rounds moves;
  for (const UnitMoves& unit : proven.plan.units) {
    moves.rounds.resize(std::max(moves.rounds.size(), unit.moves.rounds.size()));
    for (size_t r = 0; r < unit.moves.rounds.size(); ++r)
      moves.rounds[r].insert(moves.rounds[r].end(), unit.moves.rounds[r].begin(), unit.moves.rounds[r].end());
  }
  for (size_t t = 0; t < proven.to.size(); ++t) {
    const int tensor = static_cast<int>(t);
    const auto sums = layout::replay_sum(moves, tensor, proven.from[t], proven.to[t]);
    if (!layout::holds_values(proven.to[t], sums, tensor, proven.from[t].partials)) return false;
  }
  return true;
}

/// Damages one message of the plan at a time. Each time the error must name the message's unit.
void expect_found(const char* what, const Damage& damage) {
  for (const Proven& valid : plans()) {
    ASSERT_EQ(valid.error(), "no error") << valid.name;
    int found = 0;
    for (size_t u = 0; u < valid.plan.units.size(); ++u)
      for (size_t r = 0; r < valid.plan.units[u].moves.rounds.size(); ++r) {
        const MessageList& round = valid.plan.units[u].moves.rounds[r];
        for (size_t m = 0; m < round.size(); ++m) {
          Messages messages = messages_of(round);
          if (!damage(messages, m)) continue;
          Proven damaged = valid;
          damaged.plan.units[u].moves.rounds[r] = with(round, std::move(messages));
          const std::string error = damaged.error();
          if (error == "no error" && sums_are_right(damaged)) continue;
          EXPECT_THAT(error, StartsWith(fmt::format("unit {}: ", u)))
              << valid.name << ": " << what << " in round " << r << ": tensor " << round[m].tensor << " box "
              << to_string(round[m].box) << " from " << round[m].src << " to " << round[m].dst;
          ++found;
        }
      }
    EXPECT_GT(found, 20) << valid.name;
  }
}

TEST(Proof, finds_a_lost_message) {
  expect_found("lost", [](Messages& messages, size_t at) {
    messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  });
}

TEST(Proof, finds_a_doubled_message) {
  expect_found("doubled", [](Messages& messages, size_t at) {
    messages.push_back(messages[at]);
    return true;
  });
}

TEST(Proof, finds_a_box_without_its_last_row) {
  expect_found("a row short", [](Messages& messages, size_t at) {
    --messages[at].box.hi[0];
    return true;
  });
}

TEST(Proof, finds_a_box_that_begins_a_row_late) {
  expect_found("a row late", [](Messages& messages, size_t at) {
    ++messages[at].box.lo[0];
    return true;
  });
}

TEST(Proof, finds_a_box_with_a_row_too_many) {
  expect_found("a row long", [](Messages& messages, size_t at) {
    ++messages[at].box.hi[0];
    return true;
  });
}

TEST(Proof, finds_a_receiver_that_has_no_room) {
  expect_found("to a rank of no shard", [](Messages& messages, size_t at) {
    messages[at].dst = 8;
    return true;
  });
}

TEST(Proof, finds_a_source_that_has_nothing) {
  expect_found("from a rank of no shard", [](Messages& messages, size_t at) {
    messages[at].src = 8;
    return true;
  });
}

TEST(Proof, finds_messages_of_two_tensors_whose_receivers_are_swapped) {
  expect_found("receivers swapped", [](Messages& messages, size_t at) {
    Msg& message = messages[at];
    for (Msg& other : std::span(messages).subspan(at + 1))
      if (other.dst != message.dst && other.tensor != message.tensor) {
        std::swap(message.dst, other.dst);
        return true;
      }
    return false;
  });
}

TEST(Proof, finds_messages_whose_tensors_are_swapped) {
  expect_found("tensors swapped", [](Messages& messages, size_t at) {
    Msg& message = messages[at];
    for (Msg& other : std::span(messages).subspan(at + 1))
      if (other.dst != message.dst && other.box != message.box && other.tensor != message.tensor) {
        std::swap(message.tensor, other.tensor);
        return true;
      }
    return false;
  });
}

TEST(Proof, finds_a_tensor_that_the_unit_does_not_have) {
  expect_found("another tensor", [](Messages& messages, size_t at) {
    messages[at].tensor = 9;
    return true;
  });
}

TEST(Proof, finds_units_that_move_nothing) {
  for (const Proven& valid : plans())
    for (size_t u = 0; u < valid.plan.units.size(); ++u) {
      Proven damaged = valid;
      damaged.plan.units[u].moves.rounds.clear();
      EXPECT_THAT(damaged.error(), StartsWith("tensor ")) << valid.name << ", unit " << u;
    }
}

TEST(Proof, finds_gradients_that_no_unit_moves_and_nobody_owns) {
  const ShardMap grad{layout::plain({8}), 1, {{0, 0, {1, {0}, {8}}}}}, nobody{layout::plain({8}), 1, {}};
  EXPECT_EQ(message_of<InternalError>([&] {
              verify_reduce({{}, true}, {grad}, {nobody});
            }),
            "box [0,8) of partial 0 is on no rank");
}

TEST(Proof, finds_a_lost_round) {
  for (const Proven& valid : plans())
    for (size_t u = 0; u < valid.plan.units.size(); ++u)
      for (size_t r = 0; r < valid.plan.units[u].moves.rounds.size(); ++r) {
        Proven damaged = valid;
        auto& rounds = damaged.plan.units[u].moves.rounds;
        rounds.erase(rounds.begin() + static_cast<std::ptrdiff_t>(r));
        EXPECT_THAT(damaged.error(), StartsWith(rounds.empty() ? "tensor " : fmt::format("unit {}: ", u).c_str()))
            << valid.name << ", round " << r;
      }
}

TEST(Proof, finds_rounds_in_the_wrong_order) {
  int tried = 0;
  for (const Proven& valid : plans())
    for (size_t u = 0; u < valid.plan.units.size(); ++u) {
      Proven damaged = valid;
      auto& rounds = damaged.plan.units[u].moves.rounds;
      if (rounds.size() < 2) continue;
      std::ranges::reverse(rounds);
      EXPECT_THAT(damaged.error(), StartsWith(fmt::format("unit {}: ", u))) << valid.name;
      ++tried;
    }
  EXPECT_GT(tried, 20);
}

TEST(Proof, finds_units_whose_numbers_are_swapped) {
  for (Proven& damaged : plans()) {
    std::swap(damaged.plan.units[1].unit, damaged.plan.units[2].unit);
    EXPECT_THAT(damaged.error(), StartsWith("unit 1: has the number 2")) << damaged.name;
  }
}

TEST(Proof, finds_a_unit_that_moves_the_tensors_of_another_one) {
  for (const Proven& valid : plans()) {
    Proven damaged = valid;
    damaged.plan.units[2].moves = damaged.plan.units[1].moves;
    EXPECT_THAT(damaged.error(), StartsWith("unit 2: moves tensor 1, ")) << valid.name;
    std::vector<int> beyond(9);
    std::iota(beyond.begin(), beyond.end(), static_cast<int>(valid.to.size()));
    const auto unknown = std::make_shared<const std::vector<int>>(std::move(beyond));
    for (MessageList& round : damaged.plan.units[2].moves.rounds) round = {round.pattern(), round.ranks(), unknown};
    EXPECT_THAT(damaged.error(), StartsWith(fmt::format("unit 2: moves tensor {}, ", valid.to.size()))) << valid.name;
  }
}

using layout::Box;

Box elements(i64 lo, i64 hi) { return {1, {lo}, {hi}}; }
layout::Shard part(int rank, i64 lo, i64 hi, int partial = 0) { return {rank, partial, elements(lo, hi)}; }
ShardMap vector_of_8(std::vector<layout::Shard> shards, int partials = 1) {
  return {layout::plain({8}), partials, std::move(shards)};
}
const std::vector<UnitMaps> kTwoUnits{{{0}}, {{1}}};

/// Two units of one tensor each, which share their messages: rank 0 sends [0,8) to ranks 1 and 2.
Proven shared_switch() {
  const std::vector<ShardMap> from(2, vector_of_8({part(0, 0, 8)})), to(2, vector_of_8({part(1, 0, 8), part(2, 0, 8)}));
  return switched("shared", kTwoUnits, from, {}, to, cluster::uniform(1, 4), Planner::relay);
}

/// The same of a sum: ranks 0 and 1 send a partial each to rank 2.
Proven shared_reduction() {
  const std::vector<ShardMap> grad(2, vector_of_8({part(0, 0, 8, 0), part(1, 0, 8, 1)}, 2)),
      owner(2, vector_of_8({part(2, 0, 8)}));
  return reduced("shared", kTwoUnits, grad, owner, cluster::uniform(1, 4), Planner::relay);
}

TEST(Proof, of_shared_messages_is_no_proof_for_a_unit_with_other_boxes) {
  const Proven valid = shared_switch();
  ASSERT_EQ(valid.plan.units[0].moves.rounds[0].pattern(), valid.plan.units[1].moves.rounds[0].pattern());
  ASSERT_EQ(valid.error(), "no error");
  Proven other = valid;
  other.from[1].shards[0].box = elements(0, 7);
  EXPECT_THAT(other.error(), AllOf(StartsWith("unit 1: "), HasSubstr("not inside one shard of the source"),
                                   HasSubstr("(numbers of ranks [0, 1, 2] and tensors [1])")));
  other = valid;
  other.to[1].shards[1].box = elements(0, 7);
  EXPECT_THAT(other.error(), AllOf(StartsWith("unit 1: "), HasSubstr("not inside one destination shard")));
  other = valid;
  other.to[1] = {layout::plain({9}), 1, {part(1, 0, 8), part(2, 0, 9)}};
  EXPECT_THAT(other.error(), StartsWith("unit 1: tensor 0 box [8,9) never reaches rank 2"));
}

TEST(Proof, of_shared_messages_is_no_proof_for_a_unit_on_other_ranks) {
  const Proven valid = shared_switch();
  Proven other = valid;
  other.from[1].shards[0].rank = 1;
  EXPECT_THAT(other.error(), AllOf(StartsWith("unit 1: "), HasSubstr("not inside one shard of the source")));
  for (const int rank : {3, 30}) {
    other = valid;
    other.to[1].shards[1].rank = rank;
    EXPECT_THAT(other.error(), StartsWith(fmt::format("unit 1: rank {} has a shard and no number", rank)));
  }
  other = valid;
  other.from[1].shards.push_back(part(1, 0, 8));
  EXPECT_THAT(other.error(), AllOf(StartsWith("unit 1: "), HasSubstr("the destination has [0,8) already")));
}

TEST(Proof, of_shared_messages_is_no_proof_for_a_unit_whose_compute_copy_differs) {
  const std::vector<ShardMap> home(2, vector_of_8({part(0, 0, 8)})), to(2, vector_of_8({part(1, 0, 8)}));
  Proven other = switched("", kTwoUnits, {}, home, to, cluster::uniform(1, 2), Planner::relay);
  ASSERT_EQ(other.error(), "no error");
  other.compute_copy[1].shards[0].box = elements(0, 7);
  EXPECT_THAT(other.error(), AllOf(StartsWith("unit 1: "), HasSubstr("not inside one shard of the source")));
}

TEST(Proof, of_shared_messages_is_no_proof_for_a_unit_with_other_partials) {
  const Proven valid = shared_reduction();
  ASSERT_EQ(valid.plan.units[0].moves.rounds[0].pattern(), valid.plan.units[1].moves.rounds[0].pattern());
  ASSERT_EQ(valid.error(), "no error");
  Proven other = valid;
  other.from[1].shards[1].partial = 0;
  EXPECT_THAT(other.error(), StartsWith("unit 1: tensor 0 box [0,8) on rank 2 has partial 0 2 times"));
  other = valid;
  other.from[1].partials = 3;
  EXPECT_THAT(other.error(), StartsWith("unit 1: tensor 0 box [0,8) on rank 2 has partial 2 0 times"));
  other.from[1].partials = 1;
  EXPECT_THAT(other.error(), StartsWith("unit 1: tensor 0 has partial 1 of 1 on rank 1"));
}

TEST(Proof, of_shared_messages_is_no_proof_for_a_unit_of_another_shape) {
  Proven other = shared_reduction();
  other.to[1].shape = layout::plain({9});
  EXPECT_THAT(other.error(), StartsWith("unit 1: box [8,9) of partial 0 is on no rank"));
}

TEST(Proof, of_shared_messages_is_no_proof_for_a_unit_with_more_rounds_or_tensors) {
  Proven other = shared_switch();
  auto& rounds = other.plan.units[1].moves.rounds;
  rounds.push_back(rounds[0]);
  EXPECT_THAT(other.error(), AllOf(StartsWith("unit 1: "), HasSubstr("the destination has [0,8) already")));
  other = shared_switch();
  for (std::vector<ShardMap>* maps : {&other.from, &other.to}) maps->push_back(maps->back());
  MessageList& round = other.plan.units[1].moves.rounds[0];
  round = {round.pattern(), round.ranks(), std::make_shared<const std::vector<int>>(std::vector<int>{1, 2})};
  EXPECT_THAT(other.error(), StartsWith("unit 1: tensor 1 box [0,8) never reaches rank 1"));
}

TEST(Proof, finds_rounds_under_different_names) {
  const ShardMap half = vector_of_8({part(0, 0, 4), part(1, 4, 8)}),
                 whole = vector_of_8({part(2, 0, 8), part(3, 0, 8)});
  const Proven valid =
      switched("", kTwoUnits, {half, half}, {}, {whole, whole}, cluster::uniform(2, 2), Planner::relay);
  ASSERT_EQ(valid.error(), "no error");
  for (size_t u = 0; u < 2; ++u)
    for (size_t r = 0; r < 2; ++r) {
      Proven other = valid;
      MessageList& round = other.plan.units[u].moves.rounds[r];
      round = {round.pattern(), std::make_shared<const std::vector<int>>(std::vector<int>{0, 1, 2, 3}),
               round.tensors()};
      EXPECT_EQ(other.error(), fmt::format("unit {}: its rounds have different names", u));
      other = valid;
      MessageList& same = other.plan.units[u].moves.rounds[r];
      same = {same.pattern(), same.ranks(), std::make_shared<const std::vector<int>>(*same.tensors())};
      EXPECT_EQ(other.error(), fmt::format("unit {}: its rounds have different names", u));
      same = {same.pattern(), same.ranks(), nullptr};
      EXPECT_EQ(other.error(), fmt::format("unit {}: its rounds have different names", u));
    }
}

TEST(Proof, is_of_any_order_of_names_but_not_without_those_of_tensors) {
  Proven other = shared_switch();
  MessageList& round = other.plan.units[1].moves.rounds[0];
  round = {round.pattern(), round.ranks(), nullptr};
  EXPECT_EQ(other.error(), "unit 1: its rounds have different names");
  other = shared_switch();
  MessageList& turned = other.plan.units[1].moves.rounds[0];
  turned = {
      std::make_shared<const layout::MessagePattern>(Messages{{2, 1, 0, elements(0, 8)}, {2, 0, 0, elements(0, 8)}}),
      std::make_shared<const std::vector<int>>(std::vector<int>{2, 1, 0}), turned.tensors()};
  EXPECT_EQ(other.error(), "no error");
}

TEST(Proof, wants_local_messages_for_what_ranks_hold) {
  const ShardMap whole = vector_of_8({part(0, 0, 8), part(1, 0, 8)});
  Proven plan =
      switched("", {{{0}}}, {vector_of_8({part(0, 0, 8)})}, {}, {whole}, cluster::uniform(1, 2), Planner::relay);
  MessageList& round = plan.plan.units[0].moves.rounds[0];
  ASSERT_EQ(messages_of(round), (Messages{{0, 0, 0, elements(0, 8)}, {0, 1, 0, elements(0, 8)}}));
  round = with(round, {{0, 0, 0, elements(0, 6)}, {0, 1, 0, elements(0, 8)}});
  EXPECT_THAT(plan.error(), StartsWith("unit 0: tensor 0 box [6,8) is not copied on rank 0, which holds it"));
}

}  // namespace
}  // namespace switchyard::switching
