#include "compiler/step_planner.hpp"

#include <gtest/gtest.h>

#include "compiler/job_plans.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

const std::vector<i64> kLengths = {60, 31, 30, 9, 8, 7};

struct Planning {
  explicit Planning(const std::vector<std::string>& sets = {})
      : job(config::job_from_toml(R"(
[model]
hidden_size = 64
layers = 2
heads = 4
ffn_size = 176
vocab_size = 100
[batch]
sequences = 6
context = 64
[[bucket]]
max_length = 64
strategy = "1,4,1"
[[bucket]]
max_length = 32
strategy = "2,2,1"
[[bucket]]
max_length = 16
strategy = "4,1,1"
[run]
steps = 1
ranks = 4
)",
                                  "job.toml", sets)),
        plans(plans_of(job, cluster::uniform(1, 4))),
        settings(step_settings(job, plans)) {}
  StepPlanner planner() const { return {settings, plans, planned_batch(settings, 0, kLengths), kLengths}; }
  config::Job job;
  Plans plans;
  StepSettings settings;
};

std::vector<int> strategies_of(const batch::StepPlan& plan) {
  std::vector<int> strategies;
  for (const batch::PhasePlan& phase : plan.phases) strategies.push_back(phase.strategy);
  return strategies;
}

TEST(PlannedBatch, uses_some_of_the_buckets_in_the_order_of_all) {
  const Planning of;
  const auto used = [&](std::vector<int> buckets) {
    return strategies_of(planned_batch(of.settings, 0, kLengths, buckets));
  };
  EXPECT_EQ(strategies_of(planned_batch(of.settings, 0, kLengths)), (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(used({0, 1, 2}), (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(used({0, 1}), (std::vector<int>{0, 1}));
  EXPECT_EQ(used({0, 2}), (std::vector<int>{0, 2}));
  EXPECT_EQ(used({0}), std::vector<int>{0});
  const Planning other({"run.order=[1,0,2]"});
  EXPECT_EQ(strategies_of(planned_batch(other.settings, 0, kLengths, std::vector{0, 1})), (std::vector<int>{1, 0}));
  EXPECT_NE(message_of([&] { used({1, 2}); }).find("longer than the longest bucket (32 tokens)"), std::string::npos);
}

TEST(StepPlanner, prefetches_as_much_as_the_budget_allows) {
  StepPlanner all = Planning().planner();
  EXPECT_FALSE(all.keep_to_budget());
  EXPECT_FALSE(all.step().peak);
  const Planning of;
  const i64 peak = rank_with_highest_peak(all.step().program, all.step().plan, of.plans).second.total;
  const auto with = [](i64 budget) {
    const Planning tight({fmt::format("run.memory_budget={} B", budget)});
    StepPlanner planner = tight.planner();
    planner.keep_to_budget();
    EXPECT_EQ(planner.fits(), planner.step().peak.has_value());  // it is known at once of a step that fits
    EXPECT_EQ(planner.peak(),
              rank_with_highest_peak(planner.step().program, planner.step().plan, tight.plans).second.total);
    EXPECT_EQ(planner.fits(), planner.peak() <= budget);
    return planner.peak();
  };
  EXPECT_EQ(with(peak), peak);
  EXPECT_LT(with(peak - 1), peak);
  EXPECT_GT(with(1), 1);  // no program fits
}

}  // namespace
}  // namespace switchyard::compiler
