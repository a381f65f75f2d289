#include "compiler/stage_blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using Kind = BlockStep::Kind;

Plans plans_of(const std::string& spec, int ranks) {
  config::ModelConfig model = small_llama();
  return Plans(training_graph(model), {config::strategy_from_spec(spec, ranks, model.layers)}, 0,
               cluster::uniform(1, ranks), switching::Planner::relay);
}

// Which blocks are there; none may be taken that is, nor dropped that isn't.
class Present {
 public:
  explicit Present(const StageBlocks& blocks) : held_(&blocks.none()) {}
  void follow(const StageBlocks::Change& change) {
    for (const BlockStep& step : change.steps) {
      if (step.kind == Kind::take) {
        EXPECT_TRUE(blocks_.insert(step.index).second) << step.index;
      }
      if (step.kind == Kind::drop || step.kind == Kind::drop_shared) {
        EXPECT_EQ(blocks_.erase(step.index), 1U) << step.index;
      }
      ++count_[step.kind];
    }
    held_ = change.held;
  }
  const StageBlocks::Held& held() const { return *held_; }
  const std::set<int>& blocks() const { return blocks_; }
  int count(Kind kind) const { return count_.contains(kind) ? count_.at(kind) : 0; }

 private:
  const StageBlocks::Held* held_;
  std::set<int> blocks_;
  std::map<Kind, int> count_;
};

TEST(StageBlocks, what_a_micro_batch_takes_has_gone_when_it_is_done) {
  const Plans plans = plans_of("1,2,2", 4);
  for (const ir::StageCode& stage : plans.strategies()[0].groups[0].stages) {
    StageBlocks blocks(stage);
    Present present(blocks);
    if (stage.act_in >= 0) present.follow(blocks.receive(present.held(), stage.act_in));
    present.follow(blocks.run(present.held(), Pass::F, ir::kWhole, false));
    if (stage.act_out >= 0) present.follow(blocks.release(present.held(), stage.act_out));
    EXPECT_FALSE(StageBlocks::kept(present.held()).empty());
    EXPECT_TRUE(std::ranges::includes(present.blocks(), StageBlocks::kept(present.held())));
    if (stage.grad_in >= 0) present.follow(blocks.receive(present.held(), stage.grad_in));
    const int gradients = present.count(Kind::gradient);
    present.follow(blocks.run(present.held(), Pass::BW, ir::kWhole, false));
    EXPECT_EQ(gradients, 0);
    EXPECT_GE(present.count(Kind::gradient), static_cast<int>(stage.params.size()));
    EXPECT_GT(present.count(Kind::begin), 0);
    EXPECT_EQ(present.count(Kind::begin), present.count(Kind::end));
    EXPECT_GT(present.count(Kind::tables), 0);
    const auto is_member = [&](int block) { return std::cmp_greater_equal(block, stage.buffers.size()); };
    EXPECT_EQ(std::ranges::count_if(present.blocks(), is_member), 0) << "roots go with their last members";
    present.follow(blocks.drop_all(present.held()));
    EXPECT_TRUE(present.blocks().empty());
  }
}

TEST(StageBlocks, the_same_tasks_in_the_same_order_are_found_once) {
  const Plans plans = plans_of("1,1,1", 1);
  StageBlocks blocks(plans.strategies()[0].groups[0].stages[0]);
  const StageBlocks::Change& forward = blocks.run(blocks.none(), Pass::F, ir::kWhole, false);
  EXPECT_EQ(&blocks.run(blocks.none(), Pass::F, ir::kWhole, false), &forward);
  EXPECT_EQ(&blocks.run(*forward.held, Pass::BW, ir::kWhole, false),
            &blocks.run(*forward.held, Pass::BW, ir::kWhole, false));
  EXPECT_NE(forward.held, &blocks.none());
}

TEST(StageBlocks, chunks_of_a_rank_share_what_one_hands_over_to_the_next) {
  const Plans plans = plans_of("1,1,2", 2);
  const std::vector<ir::StageCode>& stages = plans.strategies()[0].groups[0].stages;
  StageBlocks first(stages[0]), second(stages[1]);
  const StageBlocks::Change& ran = first.run(first.none(), Pass::F, ir::kWhole, false);
  const int out = stages[0].act_out, in = stages[1].act_in;
  EXPECT_GE(first.block_of(*ran.held, out), 0);
  const StageBlocks::Change& handed = first.hand_over(*ran.held, out);
  const StageBlocks::Change& taken = second.take_over(second.none(), in);
  EXPECT_TRUE(handed.steps.empty());
  EXPECT_TRUE(taken.steps.empty());
  const std::vector<BlockStep> both{{Kind::drop_shared, first.block_of(*ran.held, out)}, {Kind::drop_shared, in}};
  EXPECT_EQ(first.release(*handed.held, out).steps, std::vector(both.begin(), both.begin() + 1));
  EXPECT_EQ(second.block_of(*taken.held, in), in);
  EXPECT_EQ(second.release(*taken.held, in).steps, std::vector(both.begin() + 1, both.end()));
  EXPECT_EQ(first.release(*ran.held, out).steps, (std::vector<BlockStep>{{Kind::drop, both[0].index}}));
}

TEST(StageBlocks, a_collective_on_its_own_queue_drops_nothing_until_a_later_piece_waits_for_it_or_it_ends) {
  const Plans plans = plans_of("tp=2,paired=true", 2);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  for (const Pass pass : {Pass::F, Pass::BW}) {
    const ir::Segment& segment = stage.segment(pass);
    ASSERT_TRUE(segment.apart);
    StageBlocks blocks(stage);
    Present present(blocks);
    if (pass == Pass::BW) present.follow(blocks.run(present.held(), Pass::F, ir::kWhole, false));
    const int before = present.count(Kind::begin);
    int last = 0;
    for (int piece = 0; std::cmp_less_equal(piece, segment.cuts.size()); ++piece) {
      const bool apart = ir::is_collective(segment, piece);
      const int ends = present.count(Kind::end) + present.count(Kind::drop);
      present.follow(blocks.run(present.held(), pass, piece, apart));
      if (!apart) continue;
      EXPECT_EQ(present.count(Kind::end) + present.count(Kind::drop), ends) << piece;
      last = piece;
    }
    EXPECT_GT(present.count(Kind::begin), before);
    present.follow(blocks.end_apart(present.held(), pass, last));
    EXPECT_EQ(present.count(Kind::begin), present.count(Kind::end));
  }
}

}  // namespace
}  // namespace switchyard::compiler
