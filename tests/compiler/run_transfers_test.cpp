#include "compiler/run_transfers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

Plans plans_of(const std::string& spec, int ranks, int hosts = 1) {
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
    const Plans plans = plans_of(spec, 4);
    const auto copies = plans.strategies()[0].strategy.groups[0].stages[0].mesh.copies();
    const std::vector<RunTransfers>& units = plans.of_runs(0)[0][0];
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
  const Plans plans = plans_of("dp=2,tp=2,zero=3", 4);
  for (const RunTransfers& unit : plans.of_runs(0)[0][0])
    for (const switching::SharedRounds* moves : {&unit.gather, &unit.reduce})
      for (const layout::MessageList& round : moves->rounds)
        for (const layout::Msg& m : round) EXPECT_EQ(m.src % 2, m.dst % 2) << "tensor parallel ranks hold other parts";
}

// Whoever is on another host passes parts on to the ranks of its own.
TEST(RunTransfers, CrossHostsOnceForEachPart) {
  const Plans plans = plans_of("dp=4,zero=3", 4, 2);
  for (const RunTransfers& unit : plans.of_runs(0)[0][0]) {
    i64 crossing = 0;
    for (const layout::MessageList& round : unit.gather.rounds)
      for (const layout::Msg& m : round)
        if (!plans.cluster().same_host(m.src, m.dst)) crossing += m.box.elements();
    EXPECT_EQ(crossing, used_elements(plans, unit.unit, 0)) << "each host gets the other's half";
  }
}

TEST(RunTransfers, OfLayersShareTheirMessages) {
  const Plans plans = plans_of("dp=2,pp=2,zero=3", 4);
  const auto& stages = plans.of_runs(0)[0];
  EXPECT_EQ(stages[0][1].gather.rounds[0].pattern(), stages[1][0].gather.rounds[0].pattern());
  EXPECT_EQ(stages[0][1].reduce.rounds[0].pattern(), stages[1][0].reduce.rounds[0].pattern());
}

TEST(RunTransfers, OfZero2GatherNothing) {
  const Plans plans = plans_of("dp=2,zero=2", 2);
  for (const RunTransfers& unit : plans.of_runs(0)[0][0]) {
    EXPECT_THAT(unit.gather.rounds, IsEmpty());
    EXPECT_FALSE(unit.reduce.rounds.empty());
  }
  EXPECT_THAT(plans_of("dp=2,zero=1", 2).of_runs(0), IsEmpty());
  EXPECT_THAT(plans_of("tp=2,zero=3", 2).of_runs(0)[0][0], IsEmpty()) << "nobody else holds copies";
}

}  // namespace
}  // namespace switchyard::compiler
