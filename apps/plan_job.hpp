// Jobs that leave their strategies to the planner.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/assemble.hpp"
#include "config/job_reader.hpp"
#include "planner/plan.hpp"
#include "report/page.hpp"

namespace switchyard::simulator {
class KnownSegments;
}

namespace switchyard::apps {

/// Whether the job has neither buckets nor a preset of them, or all its buckets have strategy = "auto". It is an error
/// if keys are set that such a job leaves to the planner.
bool leaves_strategies_open(const config::JobDraft& draft, config::Errors& errors);
/// Number of ranks that the job sets, if it does. UserError with the errors so far if it sets an impossible one.
std::optional<int> ranks_of(const config::JobDraft& draft, const config::Errors& errors);
/// Such a job with one bucket for all documents, which the planner's buckets replace. ranks: used if the job sets none.
config::Job open_unplanned(config::JobDraft draft, config::Errors& errors, int ranks);

/// The codecs that strategies of the job's plans may have, by role: those of its longest bucket.
const config::Compression& allowed_codecs(const config::Job& job);
/// The job with the sizes from which messages gain by its codecs on the links between hosts (inside, if there are none
/// between) as compression.smallest; it stays as it is where no codec gains.
config::Job with_break_even(config::Job job, const cluster::Hardware& hardware);
/// The planner's request for the documents of the first `steps` steps.
planner::Request request_of(const config::Job& job, const cluster::Hardware& hardware, int steps);
/// The job with a budget no larger than the device's memory: a step then prefetches less, rather than running out of
/// it.
config::Job within_memory(config::Job job, const cluster::Hardware& hardware);
/// The job with a plan's buckets, home at the longest one, and a memory budget no larger than the device's memory.
config::Job planned_job(config::Job job, const planner::Planner& planner, const planner::Choice& choice);

/// A simulated plan: mean seconds per step over the request's steps, the highest peak of any rank, and the largest
/// copy for a checkpoint.
struct JudgedPlan {
  std::string name;
  std::optional<planner::Choice> choice{};  // none: the job's own buckets, which the planner's model can't time
  config::Job job;                          // with this plan
  double seconds = 0;
  i64 peak = 0, checkpoint_copy = 0;  // bytes
  bool fits = true, own = false;
  std::string remark{};  // why the job's own buckets can't run
  bool single() const { return job.buckets.size() == 1; }
};

/// Minimum number of the planner's plans that are simulated.
inline constexpr int kJudged = 8;

/// Simulates plans of a job, on other cores while the planner searches for more of them. Keeps references to the job
/// and the planner.
class Contest {
 public:
  /// own: whether to compare the job's own buckets, too, if there are no more of them than most_buckets (0: any
  /// number).
  Contest(const config::Job& job, const planner::Planner& planner, bool own = false, int most_buckets = 0);
  ~Contest();
  /// Starts to simulate a plan, unless it is known.
  void add(const planner::Choice& choice);
  /// Leaves out plans whose simulation doesn't begin within so many seconds from now, but for these, which were added.
  void leave_out(double seconds, const std::vector<planner::Choice>& but);
  /// The `listed` quickest plans of those that were added or a few more, the quickest with each number of buckets, and
  /// the job's own buckets: the same on any number of cores. The quickest comes first, with those of the codecs that
  /// the job allows with which it is quicker; those that exceed the memory budget or can't run come last. Where steps
  /// choose their buckets (run.choose_buckets), the quickest plan may have further buckets, from others, for steps
  /// whose documents they suit better.
  std::vector<JudgedPlan> judged(size_t listed);
  /// If none of the planner's plans that judged() would return fits the memory: the least of what they need, as a
  /// multiple of it.
  std::optional<double> excess(size_t listed);

 private:
  struct Entry;
  class Workers;
  Entry* find(const planner::Choice& choice);
  std::vector<Entry*> looked_at(size_t listed);
  void start(JudgedPlan plan);
  void simulate(Entry& entry);
  void simulate(Entry& entry, std::function<void()> task);
  void look_closely(Entry& entry) const;
  /// The plan with its times and memory, if it takes less than `than` seconds and fits.
  std::optional<JudgedPlan> quicker(JudgedPlan plan, double than) const;
  void add_buckets_to_choose_from(std::vector<JudgedPlan>& plans);
  void choose_pairs(std::vector<JudgedPlan>& plans);
  void choose_codecs(std::vector<JudgedPlan>& plans);
  const config::Job& job_;
  const planner::Planner& planner_;
  std::shared_ptr<const compiler::CompiledModel> model_;
  std::unique_ptr<simulator::KnownSegments> known_;
  std::list<Entry> entries_;
  std::unique_ptr<Workers> workers_;  // ends before what it works on
};

/// The planner's best plans with what the simulator says of them: those that a search for `top` finds, and the best
/// single strategies; where all that would be listed are too large, also those that fill less memory in the planner's
/// model, and what was found is that. limit: makes SearchSettings::spent for each search; runners_up: as there.
/// simulating: seconds after a search; plans whose simulation hasn't begun then are left out, but for the best of all
/// and the best single strategy in the planner's model (0: none is).
planner::Found search_and_simulate(Contest& contest, const planner::Planner& planner, int top, size_t listed,
                                   int most_buckets = 0, const std::function<std::function<double()>()>& limit = {},
                                   std::optional<i64> runners_up = planner::kStepsOfRunnersUp, double simulating = 0);
/// Simulates one job for steps with documents of these lengths.
JudgedPlan simulated(std::string name, const config::Job& job, const cluster::Hardware& hardware,
                     const std::vector<std::vector<i64>>& steps);

/// The plans as reports have them; `chosen` is one of them.
std::vector<report::Candidate> candidates_of(const std::vector<JudgedPlan>& plans, const JudgedPlan& chosen);

/// The plan used for training. why: three lines that say what was chosen, what the best single strategy would take, and
/// what limits the plan. compared: all plans that were simulated.
struct ChosenPlan {
  config::Job job;
  std::vector<std::string> why;
  std::vector<report::Candidate> compared;
};
ChosenPlan choose_plan(const config::Job& job, const cluster::Hardware& hardware);

}  // namespace switchyard::apps
