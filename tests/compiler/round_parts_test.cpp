#include "compiler/round_parts.hpp"

#include <gtest/gtest.h>

namespace switchyard::compiler {
namespace {

layout::Msg message(int src, int dst) { return {.src = src, .dst = dst, .tensor = 0, .box = {1, {0}, {1}}}; }

TEST(RoundParts, have_the_ranks_that_messages_join) {
  const std::vector<layout::Msg> round{message(5, 4), message(1, 2), message(6, 5), message(2, 3)};
  const RoundParts parts(round);
  for (const int rank : {1, 2, 3}) EXPECT_EQ(parts.of(rank), 1) << rank;
  for (const int rank : {4, 5, 6}) EXPECT_EQ(parts.of(rank), 4) << rank;
  EXPECT_EQ(parts.ranks(), 7);
}

TEST(RoundParts, of_ranks_with_messages_to_themselves_only_are_one) {
  const std::vector<layout::Msg> round{message(0, 0), message(1, 2), message(2, 2), message(4, 4)};
  const RoundParts parts(round);
  EXPECT_EQ(parts.of(0), RoundParts::kLocal);
  EXPECT_EQ(parts.of(4), RoundParts::kLocal);
  EXPECT_EQ(parts.of(2), 1) << "its own message goes with the others";
  EXPECT_EQ(parts.of(3), RoundParts::kNone);
  EXPECT_EQ(parts.of(9), RoundParts::kNone);
  EXPECT_EQ(parts.of(-1), RoundParts::kNone);
}

TEST(KnownParts, of_a_pattern_are_found_once) {
  const auto round = std::make_shared<const layout::MessagePattern>(
      std::vector<layout::Msg>{message(0, 1), message(2, 3), message(1, 0)});
  KnownParts known;
  const std::vector<RoundPart>& parts = known.of(round);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(parts[0].elements, 2);
  EXPECT_EQ(parts[1].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(&known.of(round), &parts);
}

}  // namespace
}  // namespace switchyard::compiler
