#include "compiler/memory_replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/step_assembler.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

struct Replayed {
  ReplayedMemory whole;
  std::vector<MemoryPeak> by_task;
};

Replayed replayed(const Plans& plans, const batch::StepPlan& plan, int rank, LocalStages& stages) {
  const ir::Program program = assemble(plan, plans, {.train = true});
  const Holdings holdings(plans, rank);
  std::vector<Moment> order;
  for (const int id : program.of_rank[static_cast<size_t>(rank)]) order.push_back({.task = id});
  return {replay_memory(program, plan, plans, holdings, order, false, stages),
          replay_by_task(program, plan, plans, holdings, order, stages)};
}

Plans two_phases() {
  config::ModelConfig model = small_llama();
  return Plans(
      training_graph(model),
      {config::strategy_from_spec("2,1,1", 2, model.layers), config::strategy_from_spec("1,1,2", 2, model.layers)}, 0,
      cluster::uniform(1, 2), switching::Planner::relay);
}

TEST(MemoryReplay, the_peak_is_the_highest_of_all_tasks_and_of_all_phases) {
  const Plans plans = two_phases();
  const batch::StepPlan plan = level_step(plans, 3);
  for (int rank = 0; rank < 2; ++rank) {
    LocalStages stages;
    const auto [whole, by_task] = replayed(plans, plan, rank, stages);
    EXPECT_EQ(std::ranges::max(by_task, {}, &MemoryPeak::total).bytes, whole.peak.bytes);
    ASSERT_EQ(whole.by_phase.size(), 2U);
    EXPECT_EQ(std::ranges::max(whole.by_phase), whole.peak.total);
    EXPECT_LT(std::ranges::min(whole.by_phase), whole.peak.total);
    EXPECT_GT(whole.peak.kept, 0);
  }
}

TEST(MemoryReplay, what_replays_share_changes_none) {
  const Plans plans = two_phases();
  LocalStages shared;
  for (const int tokens : {64, 48, 64}) {
    const batch::StepPlan plan = level_step(plans, 2, tokens);
    for (int rank = 0; rank < 2; ++rank) {
      LocalStages own;
      const ReplayedMemory alone = replayed(plans, plan, rank, own).whole;
      const ReplayedMemory beside = replayed(plans, plan, rank, shared).whole;
      EXPECT_EQ(alone.peak.bytes, beside.peak.bytes);
      EXPECT_EQ(alone.peak.kept, beside.peak.kept);
      EXPECT_EQ(alone.by_phase, beside.by_phase);
    }
  }
}

}  // namespace
}  // namespace switchyard::compiler
