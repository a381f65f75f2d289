#include "cluster/device_type.hpp"

#include <gtest/gtest.h>

namespace switchyard::cluster {
namespace {

TEST(DeviceType, has_the_names_of_the_key) {
  EXPECT_EQ(name_of(DeviceType::automatic), "auto");
  EXPECT_EQ(name_of(DeviceType::cpu), "cpu");
  EXPECT_EQ(name_of(DeviceType::cuda), "cuda");
}

}  // namespace
}  // namespace switchyard::cluster
