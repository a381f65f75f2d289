#include "compiler/holdings.hpp"

#include <gtest/gtest.h>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

int find(const ir::Graph& graph, const std::string& part) {
  for (size_t p = 0; p < graph.params().size(); ++p)
    if (graph.params()[p].name.find(part) != std::string::npos) return static_cast<int>(p);
  return -1;
}

const BankGroup& group_with(const std::vector<BankGroup>& bank, int param) {
  for (const BankGroup& group : bank)
    if (std::find(group.params.begin(), group.params.end(), param) != group.params.end()) return group;
  throw InternalError("no group has it");
}

TEST(Holdings, AreHomesImageWhereTheStrategyUsesWhatTheRankOwns) {
  const Plans plans = worked_plans();
  const Holdings holdings(plans, 0);
  const int q = find(plans.graph(), "layers.0.self_attn.q_proj"), norm = find(plans.graph(), "layers.0.input_layernorm");
  const int unit = plans.graph().param(q).unit;
  const std::vector<BankGroup> a = holdings.bank(0, -1, unit);
  EXPECT_EQ(group_with(a, q).source, BankGroup::Source::home);
  EXPECT_EQ(group_with(a, norm).source, BankGroup::Source::own) << "copied on both ranks, owned in halves";
  EXPECT_EQ(group_with(a, q).params.size(), 3u) << "q, k and v adjoin";
  const std::vector<BankGroup> b = holdings.bank(1, 0, unit);
  EXPECT_EQ(group_with(b, q).source, BankGroup::Source::own);
  EXPECT_EQ(group_with(b, norm).source, BankGroup::Source::previous);
}

TEST(Holdings, CountWhatABankHasOfItsOwn) {
  const Plans plans = worked_plans();
  const Holdings holdings(plans, 0);
  const int norm = find(plans.graph(), "layers.0.input_layernorm"), unit = plans.graph().param(norm).unit;
  i64 expected = 0;
  for (const BankGroup& group : holdings.bank(0, -1, unit))
    if (group.source == BankGroup::Source::own)
      for (const int p : group.params) expected += holdings.used(0, p)->elements();
  EXPECT_EQ(holdings.bank_elements(0, -1, unit), expected);
  EXPECT_EQ(holdings.bank_elements(0, -1, unit), 2 * 64) << "the two norms of a layer";
  EXPECT_EQ(holdings.gradient_elements(0, holdings.group_of(norm)), 64);
  EXPECT_EQ(holdings.used(0, find(plans.graph(), "lm_head")), nullptr) << "rank 0 is in the first stage";
}

TEST(Holdings, ARowUsesTheBanksItReadsAndWritesAndSendsFrom) {
  using Uses = std::vector<UnitUse>;
  ir::Task run{.kind = ir::TaskKind::run, .phase = 1};
  EXPECT_EQ(unit_uses(run, 0, 2), (Uses{{1, 0, false}, {1, 1, false}}));
  run.pass = ir::Pass::BW;
  EXPECT_EQ(unit_uses(run, 0, 2), (Uses{{1, 0, false}, {1, 0, true}, {1, 1, false}, {1, 1, true}}));
  ir::Task move{.kind = ir::TaskKind::move, .phase = 1, .unit = 1};
  move.messages = {{2, 3, 0, {}}};
  EXPECT_EQ(unit_uses(move, 3, 2), (Uses{{1, 1, false}}));
  EXPECT_EQ(unit_uses(move, 2, 2), (Uses{{1, 1, false}, {0, 1, false}})) << "a sender may read the bank before";
  move.phase = 0;
  EXPECT_EQ(unit_uses(move, 2, 2), (Uses{{0, 1, false}}));
  EXPECT_EQ(unit_uses({.kind = ir::TaskKind::flush, .phase = 0, .unit = 1}, 0, 2), (Uses{{0, 1, true}}));
  EXPECT_EQ(unit_uses({.kind = ir::TaskKind::prepare, .phase = 1, .unit = 0}, 0, 2), (Uses{{1, 0, false}, {0, 0, false}}));
  EXPECT_TRUE(unit_uses({.kind = ir::TaskKind::norm}, 0, 2).empty());
  EXPECT_TRUE(unit_uses({.kind = ir::TaskKind::update, .unit = 1}, 0, 2).empty());
}

}  // namespace
}  // namespace switchyard::compiler
