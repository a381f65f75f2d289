#include "planner/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard::planner {
namespace {

using testing::ElementsAre;

TEST(Workload, bounds_are_the_halves_of_the_context_down_to_the_shortest) {
  EXPECT_THAT(workload_of({{1001, 400, 10}}, 1001, 250).bounds, ElementsAre(251, 501, 1001)) << "halves rounded up";
  EXPECT_THAT(workload_of({{1024, 600, 500, 250, 1}}, 1024).bounds, ElementsAre(256, 512, 1024));
  EXPECT_THAT(workload_of({{4, 3, 2, 1}}, 4, 1).bounds, ElementsAre(1, 2, 4)) << "and end at 1";
}

TEST(Workload, bounds_that_no_document_lies_between_are_left_out) {
  EXPECT_THAT(workload_of({{100, 300, 4096}}, 4096, 512).bounds, ElementsAre(2048, 4096))
      << "from 300 to 2048 there is none";
  EXPECT_THAT(workload_of({{4096}}, 4096).bounds, ElementsAre(4096));
  EXPECT_THAT(workload_of({{300}}, 1000).bounds, ElementsAre(1000)) << "the context stays";
}

TEST(Workload, documents_of_all_steps_count_and_are_kept) {
  const Workload workload = workload_of({{1024}, {400, 1}}, 1024);
  EXPECT_THAT(workload.bounds, ElementsAre(256, 512, 1024));
  EXPECT_THAT(workload.steps, ElementsAre(ElementsAre(1024), ElementsAre(400, 1)));
}

}  // namespace
}  // namespace switchyard::planner
