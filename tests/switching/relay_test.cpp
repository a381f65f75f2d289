// The worked step of two layers on two hosts of two ranks: strategy A is dp 1, tp 2, pp 2 and home's anchor, B is dp 4.
#include "switching/relay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "model_maps.hpp"
#include "switching/bounds.hpp"

namespace switchyard::switching {
namespace {

using testing::ElementsAre;

class WorkedStep : public testing::Test {
 protected:
  /// Bytes between ranks, round by round; rounds of local messages only are empty strings.
  static std::vector<std::string> rounds(const MovePlan& plan, size_t unit, i64 element_size) {
    std::vector<std::string> result;
    for (const auto& round : plan.units[unit].moves.rounds) result.push_back(pairs(round, element_size));
    return result;
  }

  const Model model_ = llama(2, 64, 4, 2, 176, 100);
  const StrategySpec a_ = strategy(1, 2, 2, 2), b_ = strategy(4, 1, 1, 2);
  const cluster::Cluster hosts_ = cluster::uniform(2, 2);
  const std::vector<layout::ShardMap> compute_copy_ = home(model_, a_);
};

TEST_F(WorkedStep, the_model_has_105280_parameters) {
  i64 elements = 0;
  for (const Tensor& tensor : model_.tensors) elements += tensor.shape.elements();
  EXPECT_EQ(elements, 105280);
}

TEST_F(WorkedStep, home_to_a_moves_norm_rows_only) {
  const MovePlan plan = plan_switch(model_.units, {}, compute_copy_, stored(model_, a_), hosts_, Planner::relay);
  ASSERT_NO_THROW(verify_switch(plan, {}, compute_copy_, stored(model_, a_)));
  EXPECT_THAT(rounds(plan, 0, 2), ElementsAre(""));
  EXPECT_THAT(rounds(plan, 1, 2), ElementsAre("0>1 128; 1>0 128"));
  EXPECT_THAT(rounds(plan, 2, 2), ElementsAre("2>3 128; 3>2 128"));
  EXPECT_THAT(rounds(plan, 3, 2), ElementsAre("2>3 64; 3>2 64"));
}

TEST_F(WorkedStep, a_to_b_crosses_each_host_boundary_once) {
  const auto from = stored(model_, a_), to = stored(model_, b_);
  const MovePlan plan = plan_switch(model_.units, from, compute_copy_, to, hosts_, Planner::relay);
  ASSERT_NO_THROW(verify_switch(plan, from, compute_copy_, to));
  EXPECT_THAT(rounds(plan, 0, 2), ElementsAre("0>1 6144; 0>2 6144; 1>0 6656; 1>3 6656", "2>3 6144; 3>2 6656"));
  EXPECT_THAT(rounds(plan, 1, 2), ElementsAre("0>1 46080; 0>2 46208; 1>0 46080; 1>3 46208", "2>3 46208; 3>2 46208"));
  EXPECT_THAT(rounds(plan, 2, 2), ElementsAre("2>0 46208; 2>3 46080; 3>1 46208; 3>2 46080", "0>1 46208; 1>0 46208"));
  EXPECT_THAT(rounds(plan, 3, 2), ElementsAre("2>0 6208; 2>3 6144; 3>1 6720; 3>2 6656", "0>1 6208; 1>0 6720"));
  EXPECT_EQ(traffic(plan, hosts_, 2).links.inter_host, 210560);
  EXPECT_EQ(inter_host_bound_bytes(from, compute_copy_, to, hosts_, 2), 210560);
  for (const Planner planner : {Planner::greedy, Planner::first, Planner::round_robin}) {
    EXPECT_EQ(traffic(plan_switch(model_.units, from, compute_copy_, to, hosts_, planner), hosts_, 2).links.inter_host,
              421120);
  }
}

TEST_F(WorkedStep, b_to_home_adds_on_each_host_before_it_crosses) {
  const auto grad = gradients(model_, b_);
  const MovePlan plan = plan_reduce(model_.units, grad, compute_copy_, hosts_, Planner::relay);
  ASSERT_NO_THROW(verify_reduce(plan, grad, compute_copy_));
  EXPECT_THAT(rounds(plan, 0, 4),
              ElementsAre("0>1 13312; 1>0 12288; 2>3 13312; 3>2 12288", "2>0 12288; 3>1 13312", ""));
  EXPECT_THAT(rounds(plan, 1, 4),
              ElementsAre("0>1 92416; 1>0 92416; 2>3 92416; 3>2 92416", "2>0 92416; 3>1 92416", ""));
  EXPECT_THAT(rounds(plan, 2, 4),
              ElementsAre("0>1 92416; 1>0 92416; 2>3 92416; 3>2 92416", "0>2 92416; 1>3 92416", ""));
  EXPECT_THAT(rounds(plan, 3, 4),
              ElementsAre("0>1 13440; 1>0 12416; 2>3 13440; 3>2 12416", "0>2 12416; 1>3 13440", ""));
  EXPECT_EQ(traffic(plan, hosts_, 4).links.inter_host, 421120);
  EXPECT_EQ(
      traffic(plan_reduce(model_.units, grad, compute_copy_, hosts_, Planner::greedy), hosts_, 4).links.inter_host,
      842240);
}

TEST_F(WorkedStep, a_to_home_adds_norm_gradients_of_a_pair) {
  const auto grad = gradients(model_, a_);
  const MovePlan plan = plan_reduce(model_.units, grad, compute_copy_, hosts_, Planner::relay);
  ASSERT_NO_THROW(verify_reduce(plan, grad, compute_copy_));
  EXPECT_THAT(rounds(plan, 0, 4), ElementsAre(""));
  EXPECT_THAT(rounds(plan, 1, 4), ElementsAre("0>1 256; 1>0 256", ""));
  EXPECT_THAT(rounds(plan, 2, 4), ElementsAre("2>3 256; 3>2 256", ""));
  EXPECT_THAT(rounds(plan, 3, 4), ElementsAre("2>3 128; 3>2 128", ""));
}

TensorSlice slice(std::vector<int> holders, std::vector<int> partials, std::vector<int> takers, i64 rows = 64) {
  return {0, {{1, {0}, {rows}}, std::move(holders), std::move(partials), std::move(takers)}};
}

using Relay = RangeRounds (*)(std::span<const Bundle>, const cluster::Cluster&);

layout::Rounds messages_of(Relay relay, const TensorSlice& slice, const cluster::Cluster& cluster) {
  const std::vector<Bundle> all = bundles(std::vector{slice});
  layout::Rounds messages;
  for (const std::vector<BundleRange>& round : relay(all, cluster)) {
    messages.rounds.emplace_back();
    for (const BundleRange& range : round) add_messages(range, messages.rounds.back());
  }
  return messages;
}

TEST(RelaySwitch, senders_and_receivers_of_a_crossing_share_it) {
  const auto plan = messages_of(relay_switch, slice({0, 1}, {0, 0}, {2, 3}), cluster::uniform(2, 2));
  EXPECT_EQ(pairs(plan.rounds[0], 1), "0>2 32; 1>3 32");
  EXPECT_EQ(pairs(plan.rounds[1], 1), "2>3 32; 3>2 32");
}

TEST(RelaySwitch, holders_inside_a_host_share_the_receivers_there) {
  const auto plan = messages_of(relay_switch, slice({0, 1}, {0, 0}, {0, 2, 3, 4}), cluster::uniform(1, 5));
  std::vector<i64> sent(5);
  for (const auto& msg : plan.rounds[0])
    sent[static_cast<size_t>(msg.src)] += msg.src == msg.dst ? 0 : msg.box.elements();
  EXPECT_THAT(sent, ElementsAre(96, 96, 0, 0, 0));
  EXPECT_TRUE(plan.rounds[1].empty());
}

TEST(RelaySwitch, many_copies_send_no_more_pieces_than_receivers_need) {
  const auto plan = messages_of(relay_switch, slice({0, 1, 2, 3, 4, 5, 6, 7}, std::vector<int>(8), {8, 9}, 640),
                                cluster::uniform(2, 8));
  i64 most = 0;
  for (const auto& msg : plan.rounds[0]) most = std::max(most, msg.box.elements());
  EXPECT_EQ(most, 80) << "eight senders, one eighth each";
}

TEST(RelayReduce, a_lone_partial_crosses_in_the_first_round) {
  const auto plan = messages_of(relay_reduce, slice({0, 2}, {0, 1}, {2}), cluster::uniform(2, 2));
  EXPECT_EQ(pairs(plan.rounds[0], 1), "0>2 64");
  EXPECT_TRUE(plan.rounds[1].empty());
  ASSERT_EQ(plan.rounds[2].size(), 1u);
}

TEST(RelayReduce, copies_of_a_partial_on_the_owners_host_do_not_cross) {
  const auto plan = messages_of(relay_reduce, slice({0, 2, 3, 1}, {0, 0, 1, 1}, {2}), cluster::uniform(2, 2));
  EXPECT_EQ(pairs(plan.rounds[0], 1), "3>2 64");
  EXPECT_TRUE(plan.rounds[1].empty());
}

TEST(RelayReduce, partials_with_copies_on_several_hosts_join_a_host_that_sends_anyway) {
  const cluster::Cluster three =
      cluster::uniform(3, 2);  // partial 0 on hosts 0 and 1, partial 1 on host 1 only, owner on host 2
  const auto plan = messages_of(relay_reduce, slice({0, 2, 3}, {0, 0, 1}, {4}), three);
  EXPECT_EQ(pairs(plan.rounds[0], 1), "3>2 32; 2>3 32");
  EXPECT_EQ(pairs(plan.rounds[1], 1), "2>4 32; 3>4 32");
}

TEST(RelayReduce, to_two_owners_is_a_bug) {
  EXPECT_THROW(messages_of(relay_reduce, slice({0}, {0}, {0, 1}), cluster::uniform(1, 2)), InternalError);
}

}  // namespace
}  // namespace switchyard::switching
