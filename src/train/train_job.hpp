// `switchyard train`: a job from its first step, or a checkpoint, to its last.
#pragma once

#include <string>

#include "comm/launch.hpp"
#include "config/job.hpp"

namespace switchyard::train {

/// resume: a checkpoint or a run folder, empty: a fresh start. The job is resolved and validated. plan_json: text of
/// plan.json, empty: the strategies are not the planner's.
struct TrainSettings {
  config::Job job{};
  std::string resume{}, plan_json{};
};

/// Trains to job.run.steps. With job.run.out the folder gets job.toml, plan.json, log.jsonl, TensorBoard events and
/// checkpoints.
/// errors UserError: no data, a model that does not fit the memory budget, or a fresh start in a folder with
/// checkpoints;
///         ClusterError: a rank failed or stopped responding
void train(const TrainSettings& settings, const comm::Launch& launch);

}  // namespace switchyard::train
