// A job's steps, planned exactly as in training: batch plan and program.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "batch/planner.hpp"
#include "compiler/assemble.hpp"
#include "compiler/memory.hpp"
#include "compiler/step_assembler.hpp"
#include "config/job.hpp"

namespace switchyard::compiler {

/// How a job's batches become steps. order: buckets as a step runs them. memory_budget: bytes per rank, 0: none.
struct StepSettings {
  std::vector<batch::BucketSpec> buckets{};
  batch::WorkModel work{};
  std::vector<int> order{};
  bool prefetch = true;
  i64 memory_budget = 0;
};
StepSettings step_settings(const config::Job& job, const Plans& plans);

/// The batch plan of step index + 1, for documents of these lengths. used: the buckets (ascending) that the step uses;
/// a document whose own one is left out belongs to the next longer one.
batch::StepPlan planned_batch(const StepSettings& settings, i64 index, std::span<const i64> lengths,
                              std::span<const int> used);
/// The same with all buckets.
batch::StepPlan planned_batch(const StepSettings& settings, i64 index, std::span<const i64> lengths);

/// peak: bytes of the rank with the highest peak, if it was looked for.
struct PlannedStep {
  std::vector<i64> lengths;  // tokens of each document
  batch::StepPlan plan;
  ir::Program program;
  std::optional<i64> peak{};
};

/// Plans the program of a step. Where there is a memory budget, it prefetches at first what one of the ranks has memory
/// for.
class StepPlanner {
 public:
  StepPlanner(const StepSettings& settings, const Plans& plans, batch::StepPlan plan, std::vector<i64> lengths);
  /// Prefetches less if another rank exceeds the budget. Returns whether the program changed.
  bool keep_to_budget();
  /// Whether all ranks are known to fit: there is no budget, or it has been kept to.
  bool fits() const { return budget_ == 0 || (step_.peak && *step_.peak <= budget_); }
  /// Bytes of the rank with the highest peak. What exceeds the budget takes longer to find.
  i64 peak();
  const PlannedStep& step() const& { return step_; }
  PlannedStep step() && { return std::move(step_); }

 private:
  void prefetch(int units);
  const Plans& plans_;
  i64 budget_;  // bytes; 0: none
  PlannedStep step_;
  StepAssembler assembler_;
  BudgetCheck check_;
  int units_ = 0;  // that are prefetched
};

}  // namespace switchyard::compiler
