#include "config/names_elsewhere.hpp"

#include <gtest/gtest.h>

namespace switchyard::config {
namespace {

TEST(NamesElsewhere, are_answered_with_the_keys_here) {
  EXPECT_EQ(instead_of("cp"), "Documents are divided over ranks by ring, ulysses or both.");
  EXPECT_EQ(instead_of("fsdp"), "Sharded data parallelism is dp with zero=3.");
  EXPECT_EQ(instead_of("tp"), "");
}

}  // namespace
}  // namespace switchyard::config
