// The batch of each step and its plan, made by rank 0 and known to all ranks.
#pragma once

#include <future>
#include <memory>
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

/// Collective: every rank calls the same functions in the same order.
class BatchPlanner {
 public:
  /// sources: of the job. hardware: with whose rates each step's buckets are chosen (RunSettings::choose_buckets);
  /// null: steps use all buckets. What it is made of outlives it.
  BatchPlanner(const config::Job& job, const std::vector<data::Source>& sources, const data::Sampler& sampler,
               const compiler::Plans& plans, comm::Fabric& fabric, const cluster::Hardware* hardware);
  /// Waits for what was begun.
  ~BatchPlanner();
  /// Begins to plan step index + 1, whose documents follow `cursor`, and what its switches move, in a thread of its
  /// own.
  void begin(i64 index, const data::Cursor& cursor);
  /// The plan that was begun, or one that is made now.
  PlannedBatch take(i64 index, const data::Cursor& cursor);

 private:
  PlannedBatch plan(i64 index, const data::Cursor& cursor);
  batch::StepPlan plan_by_rank_0(i64 index, const std::vector<i64>& lengths);

  const std::vector<data::Source>& sources_;
  const data::Sampler& sampler_;
  const compiler::Plans& plans_;
  comm::Fabric& fabric_;
  const compiler::StepSettings settings_;
  simulator::KnownSegments known_;
  std::unique_ptr<simulator::BucketChooser> chooser_;  // null: steps use all buckets
  comm::JointWork choosing_;                           // takes as long as it takes
  i64 begun_ = -1;                                     // index of the step that was begun
  std::future<PlannedBatch> next_;
};

}  // namespace switchyard::train
