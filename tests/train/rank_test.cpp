#include "train/rank.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "../comm/rank_threads.hpp"
#include "../runtime/tiny_job.hpp"

namespace switchyard::train {
namespace {

TEST(Rank, RanksThatHoldTheSameNumberAgree) {
  const auto ends = comm::run_ranks(3, {}, [](comm::Fabric& fabric) { agree_on(fabric, 17, "job file", 1); });
  EXPECT_EQ(ends, std::vector<std::string>(3));
}

TEST(Rank, RanksThatDifferAreNamedOnEveryRank) {
  const auto ends = comm::run_ranks(4, {}, [](comm::Fabric& fabric) {
    agree_on(fabric, fabric.rank() == 1 || fabric.rank() == 3 ? 18 : 17, "job file", 1);
  });
  for (const std::string& end : ends)
    EXPECT_EQ(end, "ranks [1, 3] have another job file than rank 0. Start all ranks with the same job file and program.");
}

TEST(Rank, AStepWithoutLearningLeavesTheLossAndOneWithLearningLowersIt) {
  const runtime::Documents documents = runtime::tiny_documents(4, 5);
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = runtime::tiny_plans({"1,2,1"}, 2);
    Rank rank(plans, runtime::tiny_llama(), fabric, {});
    rank.store().initialize(runtime::tiny_values(plans.graph()));
    const batch::StepPlan plan = runtime::tiny_batch(0, documents, plans, {runtime::kLongest});
    std::vector<double> losses;
    for (const double lr : {0.0, 1e-3, 0.0})
      losses.push_back(rank.step(plan, documents, [&](double norm) {
        EXPECT_GT(norm, 0);
        return runtime::UpdateSettings{{lr, 0.9, 0.95, 1e-8, 0.1, 1}, 1};
      }).loss);
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_LT(losses[2], losses[1] - 1e-4);
    EXPECT_EQ(rank.program().of_rank.size(), 2u);
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

}  // namespace
}  // namespace switchyard::train
