// `switchyard train`: a job from its first step, or a checkpoint, to its last.
#pragma once

#include <optional>
#include <string>

#include "cluster/hardware.hpp"
#include "comm/launch.hpp"
#include "config/job.hpp"
#include "train/ranks.hpp"

namespace switchyard::train {

/// resume: a checkpoint or a run folder, empty: a fresh start. The job is resolved and validated. plan_json: text of
/// plan.json, empty: the strategies are not the planner's. force: a fresh start sets aside what the run folder holds.
/// new_data: a resumed run may draw from other sources than its checkpoint (resumed_data).
/// warned: what the run won't keep was printed already (not_kept).
/// joined: the fabric of the launch, if its processes have planned together.
/// emulated: the cluster, with rates, that job.run.emulate names; there if that is set. hardware: the same or this
/// machine's; there if job.run.choose_buckets is set.
struct TrainSettings {
  config::Job job{};
  std::string resume{}, plan_json{};
  bool force = false, new_data = false, warned = false;
  JoinedFabric joined{};
  std::optional<cluster::Hardware> emulated{}, hardware{};
};

/// Trains to job.run.steps, or to the end of the step in which a rank is asked to stop (StopSignals): all ranks stop
/// after the same one. Returns the signal that ended the run before its last step, else 0. With job.run.out the folder
/// gets job.toml, plan.json, log.jsonl, TensorBoard events and checkpoints, the last of them when the run ends.
/// errors UserError: no data, a model that does not fit the memory budget, or a fresh start in the folder of another
/// run;
///         ClusterError: a rank failed or stopped responding
int train(const TrainSettings& settings, const comm::Launch& launch);

}  // namespace switchyard::train
