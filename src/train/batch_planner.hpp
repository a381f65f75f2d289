// The batch of each step and its plan, made by rank 0 and known to all ranks.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/hardware.hpp"
#include "comm/joint_work.hpp"
#include "compiler/step_planner.hpp"
#include "config/job.hpp"
#include "data/sampler.hpp"
#include "data/sources.hpp"
#include "simulator/bucket_choice.hpp"

namespace switchyard::train {

struct PlannedBatch {
  data::Batch batch{};
  batch::StepPlan plan{};
};

/// Plans two steps ahead: while a step runs, its successor is known to all ranks, which plan its switches, and rank 0
/// plans the one after that. Collective: every rank calls the same functions in the same order.
class BatchPlanner {
 public:
  /// sources: of the job. hardware: with whose rates each step's buckets are chosen (RunSettings::choose_buckets);
  /// null: steps use all buckets. What it is made of outlives it.
  BatchPlanner(const config::Job& job, const std::vector<data::Source>& sources, const data::Sampler& sampler,
               const compiler::Plans& plans, comm::Fabric& fabric, const cluster::Hardware* hardware);
  /// Waits for what is being planned.
  ~BatchPlanner();
  /// The batch of step index + 1, whose documents follow `cursor`, before that step runs. Steps follow one another.
  PlannedBatch take(i64 index, const data::Cursor& cursor);
  /// The plan of the step after that which was taken last; null: there is none.
  const batch::StepPlan* following() const { return next_ ? &next_->plan : nullptr; }

 private:
  // plan: encoded, on rank 0.
  struct Draft {
    data::Batch batch{};
    std::vector<std::byte> plan{};
  };
  Draft draft(i64 index, const data::Cursor& cursor);
  PlannedBatch share(i64 index, const std::function<Draft()>& drafted);
  void begin_next(i64 index);

  const std::vector<data::Source>& sources_;
  const data::Sampler& sampler_;
  const compiler::Plans& plans_;
  comm::Fabric& fabric_;
  const i64 steps_;
  const compiler::StepSettings settings_;
  simulator::KnownSegments known_segments_;
  std::unique_ptr<simulator::BucketChooser> chooser_;  // null: steps use all buckets
  comm::JointWork drafting_;                           // takes as long as it takes
  std::optional<PlannedBatch> next_;                   // the step after the one that was taken last
  std::future<Draft> after_next_;                      // made by a thread that also plans the switches of next_
};

}  // namespace switchyard::train
