#include "plan_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <thread>

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

// The planner's best, and the best of one strategy, if any fits.
std::vector<planner::Choice> contestants(const Contest& contest, std::function<bool()> stop) {
  std::vector<planner::Choice> choices = contest.best;
  try {
    const planner::Choice single = contest.planner.plan(1, 1, std::move(stop)).best.front();
    const auto same = [&](const planner::Choice& choice) {
      return choice.phases == single.phases && choice.zero == single.zero;
    };
    if (std::ranges::none_of(choices, same)) choices.push_back(single);
  } catch (const UserError&) {
  }
  return choices;
}

std::string name_of(const std::vector<config::Bucket>& buckets) {
  std::string text;
  for (const config::Bucket& bucket : buckets)
    text += fmt::format("{}to {}: {}", text.empty() ? "" : "; ", bucket.max_length,
                        bucket.spec.empty() ? bucket.strategy.name : bucket.spec);
  return text;
}

// As one of the others, if it is.
void add_own(const Contest& contest, std::vector<JudgedPlan>& plans) {
  const config::Job& job = contest.job;
  JudgedPlan own{
      .name = name_of(job.buckets), .job = within_memory(job, contest.planner.request().hardware), .own = true};
  if (job.run.home == 0) own.choice = contest.planner.choice(job.buckets, compiler::phase_order(job));
  if (own.choice) own.name = contest.planner.to_string(*own.choice);
  const auto same = [&](const JudgedPlan& plan) {
    return own.choice && plan.choice->phases == own.choice->phases && plan.choice->zero == own.choice->zero;
  };
  if (const auto known = std::ranges::find_if(plans, same); known != plans.end())
    known->own = true;
  else
    plans.push_back(std::move(own));
}

// On all cores.
void for_all(std::vector<JudgedPlan>& plans, const std::function<void(JudgedPlan&)>& work) {
  std::atomic<size_t> next = 0;
  const auto some = [&] {
    for (size_t i = next++; i < plans.size(); i = next++) work(plans[i]);
  };
  std::vector<std::future<void>> others;
  for (unsigned thread = 1; thread < std::min<size_t>(plans.size(), std::thread::hardware_concurrency()); ++thread)
    others.push_back(std::async(std::launch::async, some));
  some();
  for (std::future<void>& other : others) other.get();
}

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
  planner::Request request{
      .model = job.model.config, .precision = compiler::precision_of(job.run), .hardware = hardware, .steps = {}};
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

std::vector<JudgedPlan> judged(const Contest& contest, std::function<bool()> stop) {
  const planner::Planner& planner = contest.planner;
  const cluster::Hardware& hardware = planner.request().hardware;
  std::vector<JudgedPlan> plans;
  for (const planner::Choice& choice : contestants(contest, std::move(stop)))
    plans.push_back(
        {.name = planner.to_string(choice), .choice = choice, .job = planned_job(contest.job, planner, choice)});
  if (contest.own &&
      (contest.most_buckets == 0 || static_cast<int>(contest.job.buckets.size()) <= contest.most_buckets))
    add_own(contest, plans);
  for_all(plans, [&](JudgedPlan& plan) {
    try {
      const JudgedPlan timed = simulated(plan.name, plan.job, hardware, planner.request().steps);
      plan.seconds = timed.seconds;
      plan.peak = timed.peak;
      plan.fits = timed.fits;
    } catch (const UserError& error) {
      if (!plan.own) throw;
      plan.remark = error.what();
      plan.seconds = std::numeric_limits<double>::infinity();
      plan.fits = false;
    }
  });
  std::ranges::stable_sort(plans, {}, [](const JudgedPlan& plan) { return std::pair(!plan.fits, plan.seconds); });
  return plans;
}

ChosenPlan choose_plan(const config::Job& job, const cluster::Hardware& hardware) {
  const planner::Planner planner(request_of(job, hardware, steps_that_stand_for_all(job)));
  const std::vector<JudgedPlan> plans = judged({.job = job, .planner = planner, .best = planner.plan(kJudged).best});
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
