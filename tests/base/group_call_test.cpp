#include "base/group_call.hpp"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(GroupCall, says_its_name_and_whether_it_adds) {
  EXPECT_EQ(name_of(GroupCall::all_gather), "all_gather");
  EXPECT_EQ(name_of(GroupCall::reduce_scatter), "reduce_scatter");
  EXPECT_EQ(name_of(GroupCall::all_reduce), "all_reduce");
  EXPECT_FALSE(sums(GroupCall::all_gather));
  EXPECT_TRUE(sums(GroupCall::reduce_scatter));
  EXPECT_TRUE(sums(GroupCall::all_reduce));
}

}  // namespace
}  // namespace switchyard
