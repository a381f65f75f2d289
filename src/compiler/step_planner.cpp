#include "compiler/step_planner.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/job_plans.hpp"

namespace switchyard::compiler {

StepSettings step_settings(const config::Job& job, const Plans& plans) {
  return {.buckets = bucket_specs(job, plans),
          .work = work_model(job.model.config),
          .order = phase_order(job),
          .prefetch = job.run.prefetch,
          .memory_budget = job.run.memory_budget.count};
}

batch::StepPlan planned_batch(const StepSettings& settings, i64 index, std::span<const i64> lengths,
                              std::span<const int> used) {
  std::vector<batch::BucketSpec> buckets;
  for (const int bucket : used) buckets.push_back(settings.buckets[static_cast<size_t>(bucket)]);
  std::vector<int> order;  // order of these
  for (const int bucket : settings.order)
    if (const auto found = std::ranges::find(used, bucket); found != used.end())
      order.push_back(static_cast<int>(found - used.begin()));
  return batch::plan_batch(index, lengths, buckets, settings.work, order);
}

batch::StepPlan planned_batch(const StepSettings& settings, i64 index, std::span<const i64> lengths) {
  return batch::plan_batch(index, lengths, settings.buckets, settings.work, settings.order);
}

StepPlanner::StepPlanner(const StepSettings& settings, const Plans& plans, batch::StepPlan plan,
                         std::vector<i64> lengths)
    : plans_(plans),
      budget_(settings.memory_budget),
      step_{.lengths = std::move(lengths), .plan = std::move(plan), .program = {}},
      assembler_(step_.plan, plans),
      check_(step_.plan, plans, budget_) {
  prefetch(settings.prefetch ? static_cast<int>(plans.units().size()) : 0);
  while (budget_ > 0 && units_ > 0 && !check_.may_fit(step_.program)) prefetch(check_.fewer_units(units_));
}

bool StepPlanner::keep_to_budget() {
  if (budget_ == 0) return false;
  const int before = units_;
  std::optional<MemoryPeak> peak;
  while (!(peak = check_.peak_within(step_.program)) && units_ > 0) prefetch(check_.fewer_units(units_));
  if (peak) step_.peak = peak->total;
  return units_ != before;
}

i64 StepPlanner::peak() {
  if (!step_.peak) step_.peak = rank_with_highest_peak(step_.program, step_.plan, plans_).second.total;
  return *step_.peak;
}

void StepPlanner::prefetch(int units) {
  units_ = units;
  step_.program = assembler_.program({.prefetch_units = units});
}

}  // namespace switchyard::compiler
