// Jobs that leave their strategies to the planner.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/job_reader.hpp"
#include "planner/plan.hpp"
#include "report/page.hpp"

namespace switchyard::apps {

/// Whether the job has no buckets nor a preset of them, or all its buckets have strategy = "auto". Errors: only some
/// have, or keys are set that such a job leaves to the planner.
bool leaves_strategies_open(const config::JobDraft& draft, config::Errors& errors);
/// Ranks that the job asks for, if it does.
std::optional<int> ranks_of(const config::JobDraft& draft);
/// Such a job, for so many ranks where it says nothing else, with one bucket that stands in for those to be planned.
config::Job open_unplanned(config::JobDraft draft, config::Errors& errors, int ranks);

/// What the planner is asked for the documents of the first `steps` steps.
planner::Request request_of(const config::Job& job, const cluster::Hardware& hardware, int steps);
/// The job with a plan's buckets; home on the longest, and no more memory than the device has.
config::Job planned_job(config::Job job, const planner::Planner& planner, const planner::Choice& choice);

/// A plan as the simulator has it: seconds of a step, mean over the request's steps, and the highest peak of any rank.
struct JudgedPlan {
  std::string name;
  std::optional<planner::Choice> choice{};  // none: the job's own buckets, where the planner's model can't time them
  config::Job job;                          // that has it
  double seconds = 0;
  i64 peak = 0;  // bytes
  bool fits = true, own = false;
  std::string remark{};  // why the job's own buckets can't run
  bool single() const { return job.buckets.size() == 1; }
};

/// So many plans of the planner's are compared at least.
inline constexpr int kJudged = 8;

/// What the simulator is asked to choose from.
struct Contest {
  const config::Job& job;
  const planner::Planner& planner;
  const std::vector<planner::Choice>& best;
  bool own = false;      // the job's own buckets, too
  int most_buckets = 0;  // of those and of the best single strategy; 0: any number
};

/// The simulator has the last word: all plans of the contest, the best single strategy (stop: as in
/// planner::SearchSettings) and the job's own buckets, simulated; the quickest first, those that exceed the memory
/// budget or can't run behind all others.
std::vector<JudgedPlan> judged(const Contest& contest, std::function<bool()> stop = {});
/// One plan's job, and mean seconds and highest peak of steps with documents of these lengths.
JudgedPlan simulated(std::string name, const config::Job& job, const cluster::Hardware& hardware,
                     const std::vector<std::vector<i64>>& steps);

/// The plan that training takes. why: three lines: what was chosen, what the best single strategy would cost, what
/// limits the plan. compared: all that the simulator looked at.
struct ChosenPlan {
  config::Job job;
  std::vector<std::string> why;
  std::vector<report::Candidate> compared;
};
ChosenPlan choose_plan(const config::Job& job, const cluster::Hardware& hardware);

}  // namespace switchyard::apps
