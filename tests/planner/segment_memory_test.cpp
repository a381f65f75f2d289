#include "planner/segment_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "../compiler/small_models.hpp"
#include "compiler/memory.hpp"

namespace switchyard::planner {
namespace {

constexpr i64 kTokens = 64;
constexpr double kRounding = 64 * 8;  // blocks of a loss or of a few tokens

compiler::Plans one_stage(config::Recompute recompute) {
  const config::ModelConfig model = compiler::small_llama();
  config::Strategy strategy = config::strategy_from_spec("1,1,1", 1, model.layers);
  strategy.recompute = recompute;
  return {compiler::training_graph(model), {strategy}, 0, cluster::uniform(1, 1), switching::Planner::relay};
}

batch::StepPlan micro_batches(int micro_batches) {
  batch::StepPlan plan{.step = 0, .valid_tokens = 1, .phases = {{0, {{}}}}};
  for (int mb = 0; mb < micro_batches; ++mb)
    plan.phases[0].replica[0].push_back(compiler::micro_batch_of(mb, kTokens, kTokens));
  return plan;
}

compiler::MemoryPeak peak_of(const compiler::Plans& plans) {
  const batch::StepPlan plan = micro_batches(2);
  return compiler::predict_memory(compiler::assemble(plan, plans, {}), plan, plans, compiler::Holdings(plans, 0));
}

i64 class_bytes(const compiler::MemoryPeak& peak, compiler::MemoryClass what) {
  return peak.bytes[static_cast<size_t>(what)];
}

TEST(SegmentMemory, is_what_a_step_of_one_stage_takes) {
  for (const config::Recompute recompute :
       {config::Recompute::none, config::Recompute::gathers, config::Recompute::selective, config::Recompute::full}) {
    const compiler::Plans plans = one_stage(recompute);
    const Kept kept = StageMemory(plans.strategies()[0].groups[0].stages[0]).activations({kTokens, kTokens});
    const compiler::MemoryPeak peak = peak_of(plans);
    EXPECT_NEAR(static_cast<double>(kept.stash), static_cast<double>(peak.kept), kRounding);
    // A micro-batch's tokens, positions, labels and weights, and the rotary table, are counted elsewhere.
    const double feeds = kTokens * (3 * 8 + 4), table = kTokens * 16 * 4;
    const i64 taken =
        class_bytes(peak, compiler::MemoryClass::activations) + class_bytes(peak, compiler::MemoryClass::workspace);
    EXPECT_NEAR(static_cast<double>(std::max(kept.forward_peak, kept.backward_peak)) + feeds + table,
                static_cast<double>(taken), kRounding);
  }
}

// One of four ranks has two of five heads.
TEST(SegmentMemory, is_that_of_the_rank_with_most_heads) {
  config::ModelConfig model = compiler::small_llama();
  model.heads = model.kv_heads = 5;
  model.hidden_size = model.heads * model.head_dim;
  config::Strategy strategy = config::strategy_from_spec("ulysses=4", 4, model.layers);
  const compiler::Plans plans(compiler::training_graph(model), {strategy}, 0, cluster::uniform(1, 4),
                              switching::Planner::relay);
  const batch::StepPlan plan = micro_batches(2);
  const ir::Program program = compiler::assemble(plan, plans, {});
  i64 least = std::numeric_limits<i64>::max(), most = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const i64 kept = compiler::predict_memory(program, plan, plans, compiler::Holdings(plans, rank)).kept;
    least = std::min(least, kept);
    most = std::max(most, kept);
  }
  EXPECT_LT(static_cast<double>(least) + 2 * kRounding, static_cast<double>(most));
  const Kept kept = StageMemory(plans.strategies()[0].groups[0].stages[0]).activations({kTokens, kTokens});
  EXPECT_NEAR(static_cast<double>(kept.stash), static_cast<double>(most), kRounding);
}

TEST(SegmentMemory, of_recomputed_segments_keeps_less) {
  const auto kept = [](config::Recompute recompute) {
    return StageMemory(one_stage(recompute).strategies()[0].groups[0].stages[0]).activations({kTokens, kTokens});
  };
  const Kept none = kept(config::Recompute::none), selective = kept(config::Recompute::selective),
             full = kept(config::Recompute::full);
  EXPECT_LT(selective.stash, none.stash);
  EXPECT_LT(full.stash, selective.stash);
  EXPECT_LT(full.backward_peak, none.backward_peak);
}

}  // namespace
}  // namespace switchyard::planner
