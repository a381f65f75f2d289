#include "plan_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "first_step.hpp"
#include "open_job.hpp"
#include "planner/explain.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::apps {
namespace {

constexpr int kFewestSteps = 2, kMostSteps = 16;  // whose documents stand for all: as many as have so many documents
constexpr i64 kDocuments = 256;
constexpr const char* kAuto = "auto";

bool is_auto(const config::BucketDraft& bucket) { return bucket.text == kAuto; }

int steps_that_stand_for_all(const config::Job& job) {
  const auto of_a_step = static_cast<i64>(lengths_of_steps(job, 1).front().size());
  return static_cast<int>(std::clamp<i64>((kDocuments + of_a_step - 1) / of_a_step, kFewestSteps, kMostSteps));
}

// The planner wouldn't keep to them.
void refuse_settings(const config::JobDraft& draft, config::Errors& errors) {
  const auto refuse = [&](const std::string& key) {
    if (draft.has(key))
      errors.add(draft.where(key), fmt::format("{} is set, but the strategies are left to the planner, which chooses "
                                               "that, too. Leave it out, or give the "
                                               "buckets strategies.",
                                               key));
  };
  for (const config::Key<config::JobDraft>& key : config::job_keys())
    if (key.name.starts_with("parallel.") || key.name == "run.order") refuse(key.name);
  for (size_t i = 0; i < draft.buckets.size(); ++i) refuse(fmt::format("bucket.{}.file", i));
}

// Within the device's memory a step prefetches less, rather than running out of it.
config::Job within_memory(config::Job job, const cluster::Hardware& hardware) {
  const i64 device = hardware.device.usable().count;
  if (job.run.memory_budget.count == 0 || job.run.memory_budget.count > device) job.run.memory_budget = {device};
  return job;
}

std::string name_of(const std::vector<config::Bucket>& buckets) {
  std::string text;
  for (const config::Bucket& bucket : buckets)
    text += fmt::format("{}to {}: {}", text.empty() ? "" : "; ", bucket.max_length,
                        bucket.degrees ? config::to_text(*bucket.degrees) : bucket.strategy.name);
  return text;
}

bool same(const planner::Choice& a, const planner::Choice& b) { return a.phases == b.phases && a.zero == b.zero; }

std::string text_of(double seconds) { return format_duration(Seconds{seconds}); }

}  // namespace

bool leaves_strategies_open(const config::JobDraft& draft, config::Errors& errors) {
  const auto planned = std::ranges::count_if(draft.buckets, is_auto);
  if (planned > 0 && planned < static_cast<std::ptrdiff_t>(draft.buckets.size()))
    errors.add(draft.origin, fmt::format("{} of {} buckets have strategy = \"auto\". The planner chooses all of them "
                                         "or none: give each a strategy, or none.",
                                         planned, draft.buckets.size()));
  const bool tried =
      draft.faulty.contains("bucket") || draft.faulty.contains("parallel.") || !draft.misses("parallel.preset");
  const bool open =
      draft.job.batch.context > 0 && !tried && planned == static_cast<std::ptrdiff_t>(draft.buckets.size());
  if (open) refuse_settings(draft, errors);
  return open;
}

std::optional<int> ranks_of(const config::JobDraft& draft) {
  return draft.has("run.ranks") ? std::optional(draft.job.run.ranks) : std::nullopt;
}

config::Job open_unplanned(config::JobDraft draft, config::Errors& errors, int ranks) {
  config::BucketDraft all;
  all.max_length = draft.job.batch.context;
  all.text = "1,1,1";
  draft.buckets = {all};
  draft.job.run.order.clear();  // an error already
  std::erase_if(draft.given, [](const auto& given) { return given.first.starts_with("bucket."); });
  for (const char* key : {"bucket.0.max_length", "bucket.0.strategy"}) draft.given[key] = draft.origin;
  if (draft.misses("run.ranks")) {
    draft.job.run.ranks = ranks;
    draft.given["run.ranks"] = draft.origin;
  }
  return open_job(draft, errors);
}

planner::Request request_of(const config::Job& job, const cluster::Hardware& hardware, int steps) {
  planner::Request request{.model = job.model.config,
                           .precision = compiler::precision_of(job.run),
                           .hardware = hardware,
                           .steps = {},
                           .code = compiler::code_options(job, hardware.placement())};
  request.steps = lengths_of_steps(job, steps);
  request.context = job.batch.context;
  request.memory = job.run.memory_budget.count;
  return request;
}

config::Job planned_job(config::Job job, const planner::Planner& planner, const planner::Choice& choice) {
  job.buckets = planner.buckets(choice);
  job.run.home = 0;
  job.run.order = planner.order(choice);
  return within_memory(std::move(job), planner.request().hardware);
}

JudgedPlan simulated(std::string name, const config::Job& job, const cluster::Hardware& hardware,
                     const std::vector<std::vector<i64>>& steps) {
  const compiler::Plans plans = compiler::plans_of(job, hardware.placement());
  JudgedPlan judged{.name = std::move(name), .job = job};
  for (size_t i = 0; i < steps.size(); ++i) {
    const PlannedStep step = planned_step(job, plans, static_cast<i64>(i), steps[i]);
    judged.peak = std::max(
        judged.peak,
        step.peak ? *step.peak : compiler::rank_with_highest_peak(step.program, step.plan, plans).second.total);
    judged.seconds +=
        simulator::simulate(step.program, step.plan, plans, hardware).step_seconds / static_cast<double>(steps.size());
  }
  judged.fits = job.run.memory_budget.count == 0 || judged.peak <= job.run.memory_budget.count;
  return judged;
}

struct Contest::Entry {
  JudgedPlan plan;
  std::exception_ptr failed{};
};

// A queue of plans; its threads leave a core to the search, which works along when it has ended.
class Contest::Simulations {
 public:
  Simulations(const cluster::Hardware& hardware, const std::vector<std::vector<i64>>& steps)
      : hardware_(hardware), steps_(steps) {
    for (unsigned thread = 1; thread < std::thread::hardware_concurrency(); ++thread)
      others_.push_back(std::async(std::launch::async, [this] { work(); }));
  }
  // What has not begun is left out.
  ~Simulations() {
    {
      const std::lock_guard lock(mutex_);
      waiting_.clear();
    }
    finish();
  }

  void add(Entry& entry) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&entry);
    changed_.notify_one();
  }

  void finish() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    work();
    for (std::future<void>& other : others_) other.get();
    others_.clear();
  }

 private:
  // Until nothing is left and nothing more comes.
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Entry& entry = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      simulate(entry);
    }
  }

  void simulate(Entry& entry) const {
    JudgedPlan& plan = entry.plan;
    try {
      const JudgedPlan timed = simulated(plan.name, plan.job, hardware_, steps_);
      plan.seconds = timed.seconds;
      plan.peak = timed.peak;
      plan.fits = timed.fits;
    } catch (const UserError& error) {
      if (!plan.own) entry.failed = std::current_exception();
      plan.remark = error.what();
      plan.seconds = std::numeric_limits<double>::infinity();
      plan.fits = false;
    } catch (...) {
      entry.failed = std::current_exception();
    }
  }

  const cluster::Hardware& hardware_;
  const std::vector<std::vector<i64>>& steps_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry*> waiting_;
  bool ended_ = false;
  std::vector<std::future<void>> others_;
};

Contest::Contest(const config::Job& job, const planner::Planner& planner, bool own, int most_buckets)
    : job_(job),
      planner_(planner),
      simulations_(std::make_unique<Simulations>(planner.request().hardware, planner.request().steps)) {
  if (!own || (most_buckets > 0 && std::cmp_greater(job.buckets.size(), most_buckets))) return;
  JudgedPlan plan{.name = name_of(job.buckets), .job = within_memory(job, planner.request().hardware), .own = true};
  if (job.run.home == 0) plan.choice = planner.choice(job.buckets, compiler::phase_order(job));
  if (plan.choice) plan.name = planner.to_string(*plan.choice);
  own_ = std::make_unique<Entry>(std::move(plan));
  simulations_->add(*own_);
}

Contest::~Contest() = default;

void Contest::add(const planner::Choice& choice) {
  if (std::ranges::any_of(entries_, [&](const Entry& entry) { return same(*entry.plan.choice, choice); })) return;
  Entry& entry = entries_.emplace_back(
      JudgedPlan{.name = planner_.to_string(choice), .choice = choice, .job = planned_job(job_, planner_, choice)});
  if (own_ && own_->plan.choice && same(*own_->plan.choice, choice))
    entry.plan.own = true;
  else
    simulations_->add(entry);
}

std::vector<JudgedPlan> Contest::judged() {
  simulations_->finish();
  std::vector<JudgedPlan> plans;
  const auto add = [&](Entry& entry) {
    if (entry.failed) std::rethrow_exception(entry.failed);
    plans.push_back(std::move(entry.plan));
  };
  bool listed = false;
  for (Entry& entry : entries_) {
    if (entry.plan.own) {
      entry.plan.seconds = own_->plan.seconds;
      entry.plan.peak = own_->plan.peak;
      entry.plan.fits = own_->plan.fits;
      entry.plan.remark = own_->plan.remark;
      entry.failed = own_->failed;
      listed = true;
    }
    add(entry);
  }
  if (own_ && !listed) add(*own_);
  std::ranges::stable_sort(plans, {}, [](const JudgedPlan& plan) { return std::pair(!plan.fits, plan.seconds); });
  return plans;
}

planner::Found search_and_simulate(Contest& contest, const planner::Planner& planner, int top, int most_buckets,
                                   const std::function<std::function<bool()>()>& limit,
                                   std::optional<planner::Effort> runners_up) {
  const auto stop = [&] { return limit ? limit() : std::function<bool()>(); };
  const planner::Found found =
      planner.plan(top, most_buckets, stop(), runners_up, [&](const planner::Choice& choice) { contest.add(choice); });
  for (const planner::Choice& choice : found.best) contest.add(choice);
  try {
    contest.add(planner.plan(1, 1, stop()).best.front());
  } catch (const UserError&) {  // no single strategy fits
  }
  return found;
}

ChosenPlan choose_plan(const config::Job& job, const cluster::Hardware& hardware) {
  const planner::Planner planner(request_of(job, hardware, steps_that_stand_for_all(job)));
  Contest contest(job, planner);
  search_and_simulate(contest, planner, kJudged);
  const std::vector<JudgedPlan> plans = contest.judged();
  // One that fits, if any does; otherwise training reports what is missing.
  const JudgedPlan& best = plans.front();
  const auto single = std::ranges::find_if(plans, [](const JudgedPlan& plan) { return plan.single() && plan.fits; });
  ChosenPlan chosen{.job = best.job, .why = {}, .compared = {}};
  for (const JudgedPlan& plan : plans)
    chosen.compared.push_back(
        {.name = plan.name, .seconds = plan.seconds, .peak = plan.peak, .fits = plan.fits, .chosen = &plan == &best});
  chosen.why.push_back(fmt::format("{} a step predicted on {}: {}", text_of(best.seconds), hardware.name, best.name));
  if (best.single())
    chosen.why.push_back("one strategy for all documents is fastest; switching gains nothing here");
  else if (single == plans.end())
    chosen.why.push_back("no single strategy fits the memory");
  else
    chosen.why.push_back(fmt::format("the best single strategy would take {} ({:+.0f}%): {}", text_of(single->seconds),
                                     100 * (single->seconds / best.seconds - 1), single->name));
  chosen.why.push_back(fmt::format("limited by {}; the rank with the highest peak needs {} of {}",
                                   planner::limit_of(planner.account(*best.choice)), format_bytes(Bytes{best.peak}),
                                   format_bytes(Bytes{planner.memory()})));
  return chosen;
}

}  // namespace switchyard::apps
