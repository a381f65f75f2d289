#include "compiler/run_transfers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

Plans spread_plans(const std::string& spec, int ranks, int hosts = 1) {
  const config::ModelConfig model = small_llama();
  return Plans(training_graph(model), {config::strategy_from_spec(spec, ranks, model.layers)}, 0,
               cluster::uniform(hosts, ranks / hosts), switching::Planner::relay);
}

// Elements that pass between ranks, by sender.
std::map<int, i64> sent(const switching::SharedRounds& moves) {
  std::map<int, i64> elements;
  for (const layout::MessageList& round : moves.rounds)
    for (const layout::Msg& m : round)
      if (m.src != m.dst) elements[m.src] += m.box.elements();
  return elements;
}

i64 used_elements(const Plans& plans, int unit, int rank) {
  i64 elements = 0;
  for (const int p : plans.units()[static_cast<size_t>(unit)].tensors)
    for (const layout::Shard& shard : plans.strategies()[0].maps.used[static_cast<size_t>(p)].shards)
      if (shard.rank == rank) elements += shard.box.elements();
  return elements;
}

// Each of n ranks passes on the others' parts of what it uses: (n - 1) / n of it, but for rows that n doesn't divide.
TEST(RunTransfers, PassOnWhatIsUsedTimesOthersShare) {
  for (const char* spec : {"dp=4,zero=3", "dp=2,tp=2,zero=3", "ulysses=4,zero=3", "dp=2,ulysses=2,zero=3"}) {
    SCOPED_TRACE(spec);
    const Plans plans = spread_plans(spec, 4);
    const auto& stage = plans.strategies()[0].strategy.groups[0].stages[0];
    const i64 copies = stage.mesh.parts(layout::row_cuts(stage.mesh, 3).stored);
    const std::vector<RunTransfers>& units = plans.of_runs(0)[0][0][0];
    ASSERT_THAT(units, SizeIs(4));
    for (const RunTransfers& unit : units) {
      i64 used = 0, gathered = 0, reduced = 0;
      for (int rank = 0; rank < 4; ++rank) used += used_elements(plans, unit.unit, rank);
      for (const auto& [rank, elements] : sent(unit.gather)) gathered += elements;
      for (const auto& [rank, elements] : sent(unit.reduce)) reduced += elements;
      EXPECT_EQ(gathered, used / copies * (copies - 1));
      EXPECT_EQ(reduced, used / copies * (copies - 1));
    }
  }
}

TEST(RunTransfers, StayWithinTheRanksThatHoldCopies) {
  const Plans plans = spread_plans("dp=2,tp=2,zero=3", 4);
  for (const RunTransfers& unit : plans.of_runs(0)[0][0][0])
    for (const switching::SharedRounds* moves : {&unit.gather, &unit.reduce})
      for (const layout::MessageList& round : moves->rounds)
        for (const layout::Msg& m : round) EXPECT_EQ(m.src % 2, m.dst % 2) << "tensor parallel ranks hold other parts";
}

i64 crossing(const switching::SharedRounds& moves, const Plans& plans) {
  i64 elements = 0;
  for (const layout::MessageList& round : moves.rounds)
    for (const layout::Msg& m : round)
      if (!plans.cluster().same_host(m.src, m.dst)) elements += m.box.elements();
  return elements;
}

// Whoever is on another host passes parts on to the ranks of its own.
TEST(RunTransfers, CrossHostsOnceForEachPart) {
  const Plans plans = spread_plans("dp=4,zero=3", 4, 2);
  for (const RunTransfers& unit : plans.of_runs(0)[0][0][0])
    EXPECT_EQ(crossing(unit.gather, plans), used_elements(plans, unit.unit, 0)) << "each host gets the other's half";
}

// Two copies of the parameters, each of them cut between the hosts: the copies are equal, so one half crosses to each
// host for both. Their gradients are of different tokens and stay apart, so each of the copies sends its own.
TEST(RunTransfers, CopiesOnTheSameHostsShareWhatCrosses) {
  const Plans plans = spread_plans("ulysses=2,depth=2", 4, 2);
  for (const RunTransfers& unit : plans.of_runs(0)[0][0][0]) {
    const i64 used = used_elements(plans, unit.unit, 0);
    EXPECT_EQ(crossing(unit.gather, plans), used);
    EXPECT_EQ(crossing(unit.reduce, plans), 2 * used);
  }
  const Plans apart = spread_plans("ulysses=2,depth=2", 4, 1);
  for (const RunTransfers& unit : apart.of_runs(0)[0][0][0])
    for (const layout::MessageList& round : unit.gather.rounds)
      for (const layout::Msg& m : round) EXPECT_EQ(m.src % 2, m.dst % 2) << "on one host each copy gathers by itself";
}

TEST(RunTransfers, OfLayersShareTheirMessages) {
  const Plans plans = spread_plans("dp=2,pp=2,zero=3", 4);
  const auto& stages = plans.of_runs(0)[0][0];
  EXPECT_EQ(stages[0][1].gather.rounds[0].pattern(), stages[1][0].gather.rounds[0].pattern());
  EXPECT_EQ(stages[0][1].reduce.rounds[0].pattern(), stages[1][0].reduce.rounds[0].pattern());
}

TEST(RunTransfers, OfZero2GatherNothing) {
  const Plans plans = spread_plans("dp=2,zero=2", 2);
  for (const RunTransfers& unit : plans.of_runs(0)[0][0][0]) {
    EXPECT_THAT(unit.gather.rounds, IsEmpty());
    EXPECT_FALSE(unit.reduce.rounds.empty());
  }
  const Plans copies = spread_plans("dp=2,zero=1", 2);
  for (const auto& part : copies.of_runs(0)[0]) EXPECT_THAT(part[0], IsEmpty());
  EXPECT_THAT(spread_plans("tp=2,zero=3", 2).of_runs(0)[0][0][0], IsEmpty()) << "nobody else holds copies";
}

// 2 places on data, 2 on depth: rank 2 d + z.
TEST(RunTransfers, OverDepthStayWithinAPlaceOnDataUnlessZeroCutsThereToo) {
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    const Plans plans = spread_plans(fmt::format("dp=2,depth=2,zero={}", zero), 4);
    const auto& parts = plans.of_runs(0)[0];
    ASSERT_THAT(parts, SizeIs(zero == 1 ? 2 : 1));
    for (size_t part = 0; part < parts.size(); ++part)
      for (const RunTransfers& unit : parts[part][0]) {
        i64 used = 0;
        for (int rank = 0; rank < 4; ++rank) used += used_elements(plans, unit.unit, rank);
        used /= static_cast<i64>(parts.size());
        const auto expect = [&](const switching::SharedRounds& moves, i64 copies, bool apart) {
          i64 elements = 0;
          for (const layout::MessageList& round : moves.rounds)
            for (const layout::Msg& m : round) {
              if (apart) {
                EXPECT_EQ(m.src / 2, m.dst / 2);
              }
              if (parts.size() == 2) {
                EXPECT_EQ(m.src / 2, static_cast<int>(part));
              }
              if (m.src != m.dst) elements += m.box.elements();
            }
          EXPECT_EQ(elements, used / copies * (copies - 1));
        };
        expect(unit.gather, zero == 3 ? 4 : 2, zero < 3);
        expect(unit.reduce, zero == 1 ? 2 : 4, zero < 2);
      }
  }
}

// The published traffic over depth, for products of 4096 features on groups of 2 in bf16 (arXiv 2502.08145): each rank
// sends half of its 8 MiB of a weight, and half of its gradient.
TEST(RunTransfers, OverDepthCarryHalfOfAWeightThatTwoRanksShare) {
  const Plans plans(bare_products(), {config::strategy_from_spec("dp=2,tp=4,depth=2,inner=2", 16, 1)}, 0,
                    cluster::uniform(1, 16), switching::Planner::relay);
  const RunTransfers& unit = plans.of_runs(0)[0][0][0][1];
  ASSERT_EQ(unit.unit, 1);
  for (const switching::SharedRounds* moves : {&unit.gather, &unit.reduce}) {
    std::map<std::pair<int, int>, i64> bytes;  // parameter, sender
    for (const layout::MessageList& round : moves->rounds)
      for (const layout::Msg& m : round)
        if (m.src != m.dst) bytes[{m.tensor, m.src}] += m.box.elements() * size_of(DType::bf16);
    EXPECT_THAT(bytes, SizeIs(2 * 8)) << "two products, the ranks of one place on data";
    for (const auto& [sender, sent] : bytes) EXPECT_EQ(sent, i64{4} << 20) << "rank " << sender.second;
  }
}

}  // namespace
}  // namespace switchyard::compiler
