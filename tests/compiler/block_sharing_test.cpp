#include "compiler/block_sharing.hpp"

#include <gmock/gmock.h>

namespace switchyard::compiler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(BlockSharing, LetsAUnitsCopyWaitForTheReadersOfTheOneBeforeTheLast) {
  BlockSharing sharing;
  const Block block{.position = 0, .pass = Pass::F, .first = 0, .unit_by_unit = true};
  EXPECT_TRUE(sharing.has_no_copies());
  for (int unit = 0; unit < 4; ++unit) {
    EXPECT_FALSE(sharing.has_copy(block, unit));
    const std::vector<int> room = sharing.begin_copy(block, unit, 1);
    if (unit < 2)
      EXPECT_THAT(room, IsEmpty());
    else
      EXPECT_THAT(room, ElementsAre(10 * (unit - 2), 10 * (unit - 2) + 1));
    sharing.gathered(block, unit, {100 + unit});
    EXPECT_THAT(sharing.awaited_gathers(block, unit, 1), ElementsAre(100 + unit));
    EXPECT_THAT(sharing.awaited_gathers(block, unit, 1), IsEmpty()) << "the member's later readers come after";
    EXPECT_THAT(sharing.awaited_gathers(block, unit, 0), ElementsAre(100 + unit));
    for (int member = 0; member < 2; ++member) sharing.read(block, unit, member, 10 * unit + member);
    sharing.item_read(block, unit);
  }
  EXPECT_FALSE(sharing.has_no_copies());
}

TEST(BlockSharing, KeepsTheUnitsOfABlockUntilItsLastItemAndLetsThemComeTogether) {
  BlockSharing sharing;
  const auto block = [](int first) { return Block{0, Pass::F, first, false}; };
  int task = 0;
  for (int first = 0; first < 8; first += 2) {
    for (int mb = first; mb < first + 2; ++mb)
      for (int unit = 0; unit < 3; ++unit) {
        if (mb == first) {
          const std::vector<int> room = sharing.begin_copy(block(first), unit, 2);
          if (first < 4 || unit > 0)
            EXPECT_THAT(room, IsEmpty());
          else
            EXPECT_THAT(room, ElementsAre(task - 9, task - 8, task - 7))
                << "the last item of the block before the last";
        }
        EXPECT_TRUE(sharing.has_copy(block(first), unit));
        sharing.read(block(first), unit, 0, task++);
        sharing.item_read(block(first), unit);
      }
  }
}

// Forward and gradient items take turns, as in 1F1B.
TEST(BlockSharing, WaitsForNoCopyThatIsStillRead) {
  BlockSharing sharing;
  const Block first{0, Pass::F, 0, false}, other{0, Pass::BW, 0, false}, next{0, Pass::F, 2, false};
  sharing.begin_copy(first, 0, 2);
  sharing.read(first, 0, 0, 1);
  sharing.item_read(first, 0);
  sharing.begin_copy(other, 0, 1);
  EXPECT_THAT(sharing.begin_copy(next, 0, 1), IsEmpty());
  sharing.read(first, 0, 0, 2);
  sharing.item_read(first, 0);
  EXPECT_THAT(sharing.begin_copy({0, Pass::BW, 2, false}, 0, 1), ElementsAre(2));
}

TEST(BlockSharing, GivesTheLastWriterOfEachMember) {
  BlockSharing sharing;
  const Block block{1, Pass::W, 4, false};
  sharing.wrote(block, 3, 0, 7);
  sharing.wrote(block, 3, 1, 8);
  sharing.wrote(block, 3, 0, 9);
  sharing.wrote(block, 2, 0, 10);
  EXPECT_THAT(sharing.complete(block, 3), UnorderedElementsAre(8, 9));
  EXPECT_THAT(sharing.complete(block, 3), IsEmpty());
}

TEST(BlockSharing, GivesAMemberTheReductionsThatItHasNotAwaited) {
  BlockSharing sharing;
  EXPECT_EQ(sharing.reductions(), 0u);
  for (int unit = 0; unit < 3; ++unit) sharing.reduced({10 * unit, 10 * unit + 1});
  EXPECT_EQ(sharing.reductions(), 3u);
  EXPECT_THAT(sharing.awaited_reductions(0, 2), ElementsAre(0, 1, 10, 11));
  EXPECT_THAT(sharing.awaited_reductions(1, 1), ElementsAre(0, 1));
  EXPECT_THAT(sharing.awaited_reductions(0, 3), ElementsAre(20, 21));
  EXPECT_THAT(sharing.awaited_reductions(0, 3), IsEmpty());
  EXPECT_THAT(sharing.awaited_reductions(1, 3), ElementsAre(10, 11, 20, 21));
}

}  // namespace
}  // namespace switchyard::compiler
