#include "compiler/holdings.hpp"

#include <gtest/gtest.h>

#include <map>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

int param_named(const ir::Graph& graph, const std::string& part) {
  for (size_t p = 0; p < graph.params().size(); ++p)
    if (graph.params()[p].name.find(part) != std::string::npos) return static_cast<int>(p);
  return -1;
}

const WorkingGroup& group_with(const std::vector<WorkingGroup>& working, int param) {
  for (const WorkingGroup& group : working)
    if (std::find(group.params.begin(), group.params.end(), param) != group.params.end()) return group;
  throw InternalError("no group has it");
}

TEST(Holdings, AreHomesComputeCopyWhereTheStrategyUsesWhatTheRankOwns) {
  const Plans plans = worked_plans();
  const Holdings holdings(plans, 0);
  const int q = param_named(plans.graph(), "layers.0.self_attn.q_proj"),
            norm = param_named(plans.graph(), "layers.0.input_layernorm");
  const int unit = plans.graph().param(q).unit;
  const std::vector<WorkingGroup> a = holdings.working(0, -1, unit);
  EXPECT_EQ(group_with(a, q).source, WorkingGroup::Source::home);
  EXPECT_EQ(group_with(a, norm).source, WorkingGroup::Source::own) << "copied on both ranks, owned in halves";
  EXPECT_EQ(group_with(a, q).params.size(), 3u) << "q, k and v are adjacent";
  const std::vector<WorkingGroup> b = holdings.working(1, 0, unit);
  EXPECT_EQ(group_with(b, q).source, WorkingGroup::Source::own);
  EXPECT_EQ(group_with(b, norm).source, WorkingGroup::Source::previous);
}

TEST(Holdings, CountTheOwnMemoryOfWorkingParameters) {
  const Plans plans = worked_plans();
  const Holdings holdings(plans, 0);
  const int norm = param_named(plans.graph(), "layers.0.input_layernorm"), unit = plans.graph().param(norm).unit;
  i64 expected = 0;
  for (const WorkingGroup& group : holdings.working(0, -1, unit))
    if (group.source == WorkingGroup::Source::own)
      for (const int p : group.params) expected += holdings.used(0, p)->elements();
  EXPECT_EQ(holdings.working_elements(0, -1, unit), expected);
  EXPECT_EQ(holdings.working_elements(0, -1, unit), 2 * 64) << "the two norms of a layer";
  EXPECT_EQ(holdings.gradient_elements(0, holdings.group_of(norm)), 64);
  EXPECT_EQ(holdings.used(0, param_named(plans.graph(), "lm_head")), nullptr) << "rank 0 is in the first stage";
}

// The expected elements follow from every rank's working parameters: groups with memory of their own, as far as the
// rank has their boxes at home or used them before.
TEST(Holdings, WorkingParametersCopyWhatTheirRanksHoldInOtherBoxes) {
  const Plans plans = worked_plans();
  i64 all = 0;
  for (const auto& [strategy, previous] : {std::pair(0, -1), std::pair(1, -1), std::pair(1, 0), std::pair(0, 1)})
    for (size_t unit = 0; unit < plans.units().size(); ++unit) {
      std::map<int, i64> expected;
      for (int rank = 0; rank < plans.cluster().ranks(); ++rank) {
        const Holdings holdings(plans, rank);
        for (const WorkingGroup& group : holdings.working(strategy, previous, static_cast<int>(unit))) {
          if (group.source != WorkingGroup::Source::own) continue;
          for (const int p : group.params) {
            const layout::Box& box = *holdings.used(strategy, p);
            std::vector<layout::Box> held;
            for (const layout::Box* home : holdings.home(p)) held.push_back(layout::intersect(*home, box));
            const layout::Box* before = previous < 0 ? nullptr : holdings.used(previous, p);
            i64 elements = before ? layout::intersect(*before, box).elements() : 0;
            for (const layout::Box& part : held)
              elements += part.elements() - (before ? layout::intersect(part, *before).elements() : 0);
            if (elements > 0) expected[rank] += elements;
          }
        }
      }
      EXPECT_EQ(copied_elements(plans, strategy, previous, static_cast<int>(unit)), expected)
          << strategy << " after " << previous << ", unit " << unit;
      for (const auto& [rank, elements] : expected) all += elements;
    }
  EXPECT_GT(all, 0);
}

TEST(Holdings, ATaskUsesTheWorkingParametersItReadsWritesAndSendsFrom) {
  using Uses = std::vector<UnitUse>;
  const Plans plans = worked_plans();
  const batch::StepPlan plan{
      .step = 0, .valid_tokens = 1, .phases = {{.strategy = 1, .replica = {}}, {.strategy = 0, .replica = {}}}};
  const auto uses = [&](const ir::Task& task, int rank) { return unit_uses(task, rank, plan, plans); };
  ir::Task run{.what = ir::Run{.group = 0, .stage = 0}, .phase = 1};
  EXPECT_EQ(uses(run, 0), (Uses{{1, 0, false}, {1, 1, false}}))
      << "the first stage of \"1,2,2\" has the embedding and layer 0";
  run.what = ir::Run{.group = 0, .stage = 0, .pass = Pass::BW};
  EXPECT_EQ(uses(run, 0), (Uses{{1, 0, false}, {1, 0, true}, {1, 1, false}, {1, 1, true}}));
  ir::Task move{.what = ir::Move{.unit = 1}, .phase = 1};
  move.messages = {{2, 3, 0, {}}};
  EXPECT_EQ(uses(move, 3), (Uses{{1, 1, false}}));
  EXPECT_EQ(uses(move, 2), (Uses{{1, 1, false}, {0, 1, false}})) << "a sender may read the working parameters before";
  move.phase = 0;
  EXPECT_EQ(uses(move, 2), (Uses{{0, 1, false}}));
  EXPECT_EQ(uses({.what = ir::Reduce{.unit = 1}, .phase = 0}, 0), (Uses{{0, 1, true}}));
  EXPECT_EQ(uses({.what = ir::Allocate{.unit = 0}, .phase = 1}, 0), (Uses{{1, 0, false}, {0, 0, false}}));
  EXPECT_TRUE(uses({.what = ir::Norm{}}, 0).empty());
  EXPECT_TRUE(uses({.what = ir::Update{.unit = 1}}, 0).empty());
}

}  // namespace
}  // namespace switchyard::compiler
