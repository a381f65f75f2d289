#include "base/errors.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace switchyard {
namespace {

TEST(Errors, each_kind_carries_its_formatted_message) {
  try {
    user_error("run.ranks = {} is below {}.", 0, 1);
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "run.ranks = 0 is below 1.");
  }
  try {
    cluster_error("rank {}: nothing heard", 5);
  } catch (const ClusterError& error) {
    EXPECT_STREQ(error.what(), "rank 5: nothing heard");
  }
  EXPECT_THROW(user_error("x"), UserError);
  EXPECT_THROW(cluster_error("x"), ClusterError);
}

TEST(Errors, a_check_throws_only_when_it_does_not_hold) {
  EXPECT_NO_THROW(check(true, "fine"));
  try {
    check(false, "weight {} against x {}", std::vector<int>{2, 3}, 4);
    FAIL() << "the check passed";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "weight [2, 3] against x 4");
  }
}

TEST(Errors, an_internal_error_is_not_a_runtime_error) {
  EXPECT_THROW(
      {
        try {
          check(false, "bug");
        } catch (const std::runtime_error&) {
        }
      },
      InternalError);
}

}  // namespace
}  // namespace switchyard
