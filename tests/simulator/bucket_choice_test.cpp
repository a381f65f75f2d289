#include "simulator/bucket_choice.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "simple_steps.hpp"

namespace switchyard::simulator {
namespace {

using Sets = std::vector<std::vector<int>>;

batch::BucketSpec bucket(i64 max_length, int strategy) { return {.max_length = max_length, .strategy = strategy}; }

TEST(BucketChoices, take_all_documents_and_have_no_bucket_without_any) {
  const std::vector<batch::BucketSpec> buckets = {bucket(64, 0), bucket(32, 1), bucket(32, 2), bucket(16, 3)};
  const auto choices = [&](const std::vector<i64>& lengths) { return bucket_choices(buckets, lengths); };
  EXPECT_EQ(choices({64, 20, 3}), (Sets{{0}, {0, 1}, {0, 2}, {0, 3}, {0, 1, 3}, {0, 2, 3}}));
  EXPECT_EQ(choices({64, 33}), Sets{{0}});
  EXPECT_EQ(choices({64, 3}), (Sets{{0}, {0, 1}, {0, 2}, {0, 3}}));
  EXPECT_EQ(choices({20}), (Sets{{0}, {1}, {2}}));
  EXPECT_EQ(choices({16, 1}), (Sets{{0}, {1}, {2}, {3}}));
}

// Strategies for documents to 64 tokens on 2 devices: both on each document, or one document for each. Messages between
// hosts take 1 ms and nothing else does, but for computing.
struct Choosing {
  Choosing() : hardware(arithmetic_only(2, 1)), plans(plans_under({"1,2,1", "2,1,1"}, 2, 1)) {
    hardware.inter_host->latency = Seconds{1e-3};
    settings = {.buckets = {bucket(64, 0), bucket(64, 1)}, .work = {1, 0}, .order = {0, 1}};
    settings.buckets[1].replicas = 2;
    settings.buckets[0].multiple = 2;
  }
  ChosenStep choose(const std::vector<i64>& lengths) {
    KnownSegments known;  // segments at this latency
    return BucketChooser(settings, plans, hardware, known).choose(0, lengths);
  }
  double seconds(int used, const std::vector<i64>& lengths) {
    const batch::StepPlan plan = compiler::planned_batch(settings, 0, lengths, std::vector{used});
    return simulate(compiler::assemble(plan, plans, {}), plan, plans, hardware).step_seconds;
  }
  cluster::Hardware hardware;
  compiler::Plans plans;
  compiler::StepSettings settings;
};

TEST(BucketChooser, takes_the_quickest_strategy_for_the_documents_that_came) {
  Choosing of;
  const std::vector<i64> equal = {64, 64}, alone = {64};
  const ChosenStep two = of.choose(equal);
  EXPECT_EQ(two.buckets, std::vector<int>{1});
  EXPECT_EQ(two.step.plan.phases.at(0).strategy, 1);
  EXPECT_DOUBLE_EQ(two.seconds, of.seconds(1, equal));
  EXPECT_LT(two.seconds, of.seconds(0, equal));
  // Without latency a document is quicker on both devices.
  of.hardware.inter_host->latency = Seconds{0};
  const ChosenStep one = of.choose(alone);
  EXPECT_EQ(one.buckets, std::vector<int>{0});
  EXPECT_DOUBLE_EQ(one.seconds, of.seconds(0, alone));
  EXPECT_LT(one.seconds, of.seconds(1, alone));
}

TEST(BucketChooser, keeps_to_the_memory_budget) {
  Choosing of;
  const std::vector<i64> equal = {64, 64};
  const auto peak = [&](int used) {
    of.settings.memory_budget = std::numeric_limits<i64>::max();
    compiler::StepPlanner planner(of.settings, of.plans,
                                  compiler::planned_batch(of.settings, 0, equal, std::vector{used}), equal);
    planner.keep_to_budget();
    return *planner.step().peak;
  };
  const i64 together = peak(0), apart = peak(1);
  ASSERT_LT(together, apart);
  of.settings.memory_budget = apart;
  EXPECT_EQ(of.choose(equal).buckets, std::vector<int>{1});
  of.settings.memory_budget = apart - 1;
  EXPECT_EQ(of.choose(equal).buckets, std::vector<int>{0});
  of.settings.memory_budget = 1;
  EXPECT_EQ(of.choose(equal).buckets, std::vector<int>{0});
}

}  // namespace
}  // namespace switchyard::simulator
