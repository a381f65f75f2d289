// Jobs that leave their strategies to the planner.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job.hpp"
#include "planner/plan.hpp"

namespace switchyard::apps {

/// Whether the job has no buckets nor a preset of them, or all its buckets have strategy = "auto". UserError if only some have.
bool leaves_strategies_open(const std::string& path, const std::vector<std::string>& sets);
/// Ranks that the job asks for, if it does.
std::optional<int> ranks_of(const std::string& path, const std::vector<std::string>& sets);
/// Such a job, for so many ranks where it says nothing else, with one bucket that stands in for those to be planned.
config::Job open_unplanned(const std::string& path, std::vector<std::string> sets, int ranks);

/// What the planner is asked for the documents of the first `steps` steps.
planner::Request request_of(const config::Job& job, const cluster::Hardware& hardware, int steps);
/// The job with a plan's buckets; home on the longest, and no more memory than the device has.
config::Job planned_job(config::Job job, const planner::Planner& planner, const planner::Choice& choice);

/// The best plan that training would take: of the planner's best few and its best single strategy the one that the simulator finds
/// quickest. why: three lines: what was chosen, what the best single strategy would cost, what limits the plan.
struct ChosenPlan {
  config::Job job;
  std::vector<std::string> why;
};
ChosenPlan choose_plan(const config::Job& job, const cluster::Hardware& hardware);

}  // namespace switchyard::apps
