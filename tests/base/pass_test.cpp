#include "base/pass.hpp"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Pass, is_named_by_what_it_makes) {
  EXPECT_EQ(name_of(Pass::F), "F");
  EXPECT_EQ(name_of(Pass::B), "B");
  EXPECT_EQ(name_of(Pass::W), "W");
  EXPECT_EQ(name_of(Pass::BW), "BW");
}

}  // namespace
}  // namespace switchyard
