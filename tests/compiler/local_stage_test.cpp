#include "compiler/local_stage.hpp"

#include <gtest/gtest.h>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

TEST(LocalStage, has_the_sizes_that_the_code_says_at_every_position) {
  const config::ModelConfig model = small_llama();
  const Plans plans(training_graph(model), {config::strategy_from_spec("1,2,1", 2, model.layers)}, 0,
                    cluster::uniform(1, 2), switching::Planner::relay);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  const ir::Extent extent{48, 900};
  for (int position = 0; position < 2; ++position) {
    const LocalStage local(stage, position);
    std::map<int, i64> roots;
    for (size_t b = 0; b < stage.buffers.size(); ++b) {
      const i64 bytes = ir::local_bytes(stage.buffers[b], position, 2, extent);
      EXPECT_EQ(local.block_bytes(extent).at(b), bytes) << b;
      if (stage.buffers[b].root >= 0) roots[stage.buffers[b].root] += bytes;
    }
    EXPECT_FALSE(roots.empty());
    for (const auto& [root, bytes] : roots)
      EXPECT_EQ(local.block_bytes(extent).at(stage.buffers.size() + static_cast<size_t>(root)), bytes);
    EXPECT_EQ(local.known_block_bytes(extent), local.block_bytes(extent));
  }
  EXPECT_THROW(LocalStage(stage, 0).block_bytes({47, 900}), InternalError);
}

TEST(LocalStage, workspaces_are_those_of_the_operators) {
  const config::ModelConfig model = small_llama();
  const Plans plans(training_graph(model), {config::strategy_from_spec("1,2,1", 2, model.layers)}, 0,
                    cluster::uniform(1, 2), switching::Planner::relay);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  LocalStages stages;
  const LocalStage& local = stages.at(stage, 1);
  EXPECT_EQ(&stages.at(stage, 1), &local);
  i64 most = 0;
  for (const Pass pass : {Pass::F, Pass::BW}) {
    const std::vector<ir::Instr>& code = stage.segment(pass).code;
    for (size_t i = 0; i < code.size(); ++i) {
      const i64 workspace = local.workspace(pass, i, {48, 30});
      if (!code[i].op) {
        EXPECT_EQ(workspace, 0);
      }
      EXPECT_EQ(local.workspaces(pass, {48, 30})[i], workspace);
      most = std::max(most, workspace);
    }
  }
  EXPECT_GT(most, 0);
}

TEST(LocalStages, positions_of_the_same_sizes_share_one) {
  config::ModelConfig model = small_llama();
  for (const bool even : {true, false}) {
    model.ffn_size = even ? 192 : 176;  // in alignments of 16: 176 has 11
    model.vocab_size = even ? 64 : 67;
    const Plans plans(training_graph(model), {config::strategy_from_spec("1,2,1", 2, model.layers)}, 0,
                      cluster::uniform(1, 2), switching::Planner::relay);
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    LocalStages stages;
    EXPECT_EQ(same_sizes(stage, 0, 1), even);
    EXPECT_EQ(&stages.at(stage, 0) == &stages.at(stage, 1), even);
  }
}

}  // namespace
}  // namespace switchyard::compiler
