#include "base/names_rank.hpp"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(NamesRank, WhereAMessageBeginsWithANumberedRank) {
  EXPECT_TRUE(names_rank("rank 5 (host b): \"x\" heard nothing"));
  EXPECT_TRUE(names_rank("rank 0: its device has no memory left"));
  for (const char* other :
       {"", "rank ", "rank", "rank memory: refused", "ranks 1, 2 have another job file", "step 3: rank 1"})
    EXPECT_FALSE(names_rank(other)) << other;
}

}  // namespace
}  // namespace switchyard
