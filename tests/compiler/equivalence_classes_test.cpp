#include "compiler/equivalence_classes.hpp"

#include <gtest/gtest.h>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

// Two pipelines of two stages, with one micro-batch of the given number of tokens on each replica.
std::vector<int> first_like(int first_tokens, int second_tokens) {
  const config::ModelConfig model = small_llama();
  const Plans plans(training_graph(model), {config::strategy_from_spec("2,1,2", 4, model.layers)}, 0,
                    cluster::uniform(1, 4), switching::Planner::relay);
  const batch::StepPlan plan{
      0,
      1,
      {{0, {{micro_batch_of(0, first_tokens, first_tokens)}, {micro_batch_of(1, second_tokens, second_tokens)}}}}};
  const ir::Program program = assemble(plan, plans, {});
  return EquivalenceClasses(program, plan, plans, boxes_by_rank(plans), true).first_like();
}

TEST(EquivalenceClasses, replicas_with_equal_tasks_share_a_class_and_stages_do_not) {
  EXPECT_EQ(first_like(32, 32), (std::vector<int>{0, 0, 2, 2}));
}

TEST(EquivalenceClasses, replicas_with_unequal_tasks_are_in_different_classes) {
  EXPECT_EQ(first_like(32, 16), (std::vector<int>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace switchyard::compiler
