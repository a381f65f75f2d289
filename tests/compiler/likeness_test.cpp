#include "compiler/likeness.hpp"

#include <gtest/gtest.h>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

// Two pipelines of two stages, a micro-batch of so many tokens on each lane.
std::vector<std::vector<i64>> numbers_of(int first_tokens, int second_tokens) {
  const config::ModelConfig model = small_llama();
  const Plans plans(training_graph(model), {config::strategy_from_spec("2,1,2", 4, model.layers)}, 0, cluster::uniform(1, 4), switching::Planner::relay);
  const batch::StepPlan plan{0, 1, {{0, {{row_of(0, first_tokens, first_tokens)}, {row_of(1, second_tokens, second_tokens)}}}}};
  const ir::Program program = assemble(plan, plans, {});
  Likeness likeness(program, plan, plans);
  std::vector<std::vector<i64>> numbers;
  for (int rank = 0; rank < 4; ++rank) numbers.push_back(likeness.of(Holdings(plans, rank)));
  return numbers;
}

TEST(Likeness, replicas_with_equal_rows_are_alike_and_stages_are_not) {
  const auto numbers = numbers_of(32, 32);
  EXPECT_EQ(numbers[0], numbers[1]);
  EXPECT_EQ(numbers[2], numbers[3]);
  EXPECT_NE(numbers[0], numbers[2]);
}

TEST(Likeness, replicas_with_unequal_rows_are_not_alike) {
  const auto numbers = numbers_of(32, 16);
  EXPECT_NE(numbers[0], numbers[1]);
  EXPECT_NE(numbers[2], numbers[3]);
}

}  // namespace
}  // namespace switchyard::compiler
