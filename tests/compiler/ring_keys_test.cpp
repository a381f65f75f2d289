#include "compiler/ring_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "batch/ring_map.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using testing::ElementsAre;

Plans plans_on_hosts(const std::string& spec, const std::vector<int>& host) {
  cluster::Cluster cluster = cluster::uniform(1, static_cast<int>(host.size()));
  cluster.host = host;
  return Plans(training_graph(small_llama()), {config::strategy_from_spec(spec, cluster.ranks(), small_llama().layers)},
               0, cluster, switching::Planner::relay);
}

const batch::MicroBatch kShared{{16, 16}, {{{0, 0, 8, 1}, {0, 24, 8, 1}}, {{0, 8, 16, 1}}}};

TEST(RingKeys, pass_between_the_ranks_at_the_same_position) {
  const Plans plans = plans_on_hosts("tp=2,ring=2", {0, 0, 0, 0});
  const RingKeys keys = ring_keys(plans.strategies()[0], 0, 0, kShared, plans.cluster());
  EXPECT_THAT(keys.ranks, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  ASSERT_EQ(keys.exchanges.size(), 2u);
  EXPECT_TRUE(keys.any());
  for (const batch::KeyExchange& exchange : keys.exchanges)
    EXPECT_EQ(exchange.rounds, batch::key_exchange(kShared, KeyPassing::gather).rounds);
}

// At position 0 the first two of the ring ranks 0 to 2 are on a host, at position 1 the last two.
TEST(RingKeys, of_each_position_follow_the_hosts_there) {
  const Plans plans = plans_on_hosts("tp=2,ring=3", {0, 0, 0, 1, 1, 1});
  const batch::MicroBatch micro_batch = batch::lay_out(std::vector<batch::PlacedDocument>{{0, 36, {0, 3}}}, 3, 2);
  const RingKeys keys = ring_keys(plans.strategies()[0], 0, 0, micro_batch, plans.cluster());
  EXPECT_EQ(keys.exchanges.at(0).rounds,
            batch::key_exchange(micro_batch, KeyPassing::gather, std::vector<int>{0, 0, 1}).rounds);
  EXPECT_EQ(keys.exchanges.at(1).rounds,
            batch::key_exchange(micro_batch, KeyPassing::gather, std::vector<int>{0, 1, 1}).rounds);
  EXPECT_NE(keys.exchanges[0].rounds, keys.exchanges[1].rounds);
}

// All keys of the document, or those of two other ranks.
TEST(RingKeys, need_memory_for_all_or_for_two_steps) {
  const batch::MicroBatch micro_batch = batch::lay_out(std::vector<batch::PlacedDocument>{{0, 96, {0, 4}}}, 4, 1);
  for (const auto& [spec, all] : {std::pair("ring=4", true), std::pair("ring=4,exchange=ring", false)}) {
    const Plans plans = plans_on_hosts(spec, {0, 0, 0, 0});
    const CompiledStrategy& strategy = plans.strategies()[0];
    const RingKeys keys = ring_keys(strategy, 0, 0, micro_batch, plans.cluster());
    for (int ring = 0; ring < 4; ++ring) {
      const i64 rows = key_rows(strategy, 0, 0, {ring, 0}, micro_batch, plans.cluster());
      EXPECT_EQ(rows, keys.exchanges[0].seen[static_cast<size_t>(ring)].rows);
      EXPECT_LE(rows, all ? 96 : 2 * 96 / 4);
      if (ring == 0) {
        EXPECT_EQ(rows, all ? 96 : 2 * 96 / 4);
      }
    }
  }
}

TEST(RingKeys, of_whole_documents_are_none) {
  const Plans plans = plans_on_hosts("ring=2", {0, 1});
  const batch::MicroBatch whole{{16, 16}, {{{0, 0, 16, 1}}, {{1, 0, 16, 1}}}};
  EXPECT_FALSE(ring_keys(plans.strategies()[0], 0, 0, whole, plans.cluster()).any());
}

}  // namespace
}  // namespace switchyard::compiler
