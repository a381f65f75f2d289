#include "ir/statistic_groups.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/operators/head.hpp"

namespace switchyard::ir {
namespace {

using testing::ElementsAre;

// The head on a mesh of 2 x 2 ranks: tokens cut by the first axis, rows of the weight by the given ones.
StageCode head_stage(const std::vector<int>& rows) {
  StageCode stage;
  stage.replica = {{{"ulysses", 2}, {"outer", 2}}, {0, 1, 2, 3}};
  for (int b = 0; b < 4; ++b) {
    Buffer buffer{.name = ""};
    buffer.layout = b == 1 ? layout::Layout{{rows, {}}, {}} : layout::Layout{{{0}, {}}, {}};
    for (int position = 0; position < 4; ++position)
      buffer.box.push_back({1, {position / 2 * 2}, {position / 2 * 2 + 2}});
    stage.buffers.push_back(std::move(buffer));
  }
  return stage;
}

TEST(StatisticGroups, are_ranks_with_the_same_tokens_and_all_rows_among_them) {
  Instr head;
  head.op = std::make_shared<HeadLoss>();
  head.in = {0, 1, 2, 3};
  const StatisticGroups by_outer = statistic_groups(head_stage({1}), head, *head.op->statistic_sums(false));
  EXPECT_THAT(by_outer.groups, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(by_outer.units, 2) << "of four";
  EXPECT_THAT(statistic_groups(head_stage({0, 1}), head, *head.op->statistic_sums(false)).groups,
              ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(statistic_groups(head_stage({0}), head, *head.op->statistic_sums(false)).groups,
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

}  // namespace
}  // namespace switchyard::ir
