#include "base/key_passing.hpp"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(KeyPassing, has_the_names_of_job_files) {
  EXPECT_EQ(name_of(KeyPassing::gather), "gather");
  EXPECT_EQ(name_of(KeyPassing::ring), "ring");
}

}  // namespace
}  // namespace switchyard
