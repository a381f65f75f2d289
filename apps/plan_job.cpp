#include "plan_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "config/job_reader.hpp"
#include "first_step.hpp"
#include "open_job.hpp"
#include "planner/explain.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::apps {
namespace {

constexpr int kJudged = 8;        // plans that the simulator compares
constexpr int kSteps = 2;         // whose documents stand for all
constexpr const char* kAuto = "auto";

config::JobDraft draft_of(const std::string& path, const std::vector<std::string>& sets) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  config::Faults faults;  // told when the job is opened
  return file ? config::read_draft(text.str(), path, sets, faults) : config::JobDraft{};
}

bool is_auto(const config::BucketDraft& bucket) { return bucket.text == kAuto; }

// Seconds of a step; endless where it needs more memory than the job may use.
double simulated(const config::Job& job, const cluster::Hardware& hardware) {
  const compiler::Plans plans = compiler::plans_of(job, hardware.placement());
  double seconds = 0;
  for (const PlannedStep& step : first_steps(job, plans, kSteps)) {
    if (compiler::fullest_rank(step.program, step.plan, plans).second.total > job.run.memory_budget.count) return std::numeric_limits<double>::infinity();
    seconds += simulator::simulate(step.program, step.plan, plans, hardware).step_seconds;
  }
  return seconds / kSteps;
}

// Nothing if none fits.
std::optional<planner::Choice> best_single(const planner::Planner& planner) {
  try {
    return planner.plan(1, 1).best.front();
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::string text_of(double seconds) { return format_duration(Seconds{seconds}); }

}  // namespace

bool leaves_strategies_open(const std::string& path, const std::vector<std::string>& sets) {
  const config::JobDraft draft = draft_of(path, sets);
  const auto planned = std::ranges::count_if(draft.buckets, is_auto);
  if (planned > 0 && planned < static_cast<std::ptrdiff_t>(draft.buckets.size()))
    user_error("{}: {} of {} buckets have strategy = \"auto\". The planner chooses all of them or none: give each a strategy, or none.", path, planned,
               draft.buckets.size());
  return draft.job.batch.context > 0 && draft.parallel_preset.empty() && planned == static_cast<std::ptrdiff_t>(draft.buckets.size());
}

std::optional<int> ranks_of(const std::string& path, const std::vector<std::string>& sets) {
  const config::JobDraft draft = draft_of(path, sets);
  return draft.has("run.ranks") ? std::optional(draft.job.run.ranks) : std::nullopt;
}

config::Job open_unplanned(const std::string& path, std::vector<std::string> sets, int ranks) {
  sets.push_back(fmt::format("bucket=[{{max_length={}, strategy=\"1,1,1\"}}]", draft_of(path, sets).job.batch.context));
  sets.push_back(fmt::format("run.ranks={}", ranks_of(path, sets).value_or(ranks)));
  return open_job(path, sets);
}

planner::Request request_of(const config::Job& job, const cluster::Hardware& hardware, int steps) {
  planner::Request request{.model = job.model.config, .precision = compiler::precision_of(job.run), .hardware = hardware, .steps = {}};
  request.steps = lengths_of_steps(job, steps);
  request.context = job.batch.context;
  request.memory = job.run.memory_budget.count;
  return request;
}

config::Job planned_job(config::Job job, const planner::Planner& planner, const planner::Choice& choice) {
  job.buckets = planner.buckets(choice);
  job.run.home = 0;
  // Within it a step prefetches less, rather than running out of memory.
  const i64 device = planner.request().hardware.device.memory.count;
  if (job.run.memory_budget.count == 0 || job.run.memory_budget.count > device) job.run.memory_budget = {device};
  return job;
}

ChosenPlan choose_plan(const config::Job& job, const cluster::Hardware& hardware) {
  const planner::Planner planner(request_of(job, hardware, kSteps));
  const std::vector<planner::Choice> choices = planner.plan(kJudged).best;
  planner::Choice chosen = choices.front();
  double seconds = std::numeric_limits<double>::infinity();
  const auto consider = [&](const planner::Choice& choice) {
    const double found = simulated(planned_job(job, planner, choice), hardware);
    if (found < seconds) chosen = choice, seconds = found;
    return found;
  };
  for (const planner::Choice& choice : choices) consider(choice);
  const std::optional<planner::Choice> single = best_single(planner);
  const double alone = single ? consider(*single) : std::numeric_limits<double>::infinity();
  if (std::isinf(seconds)) seconds = chosen.seconds;  // training tells what lacks
  const planner::Account account = planner.account(chosen);
  ChosenPlan plan{planned_job(job, planner, chosen), {}};
  plan.why.push_back(fmt::format("{} a step predicted on {}: {}", text_of(seconds), hardware.name, planner.to_string(chosen)));
  plan.why.push_back(chosen.phases.size() == 1 ? "one strategy for all documents; no switch pays here"
                     : std::isinf(alone)       ? "no single strategy fits the memory"
                                               : fmt::format("the best single strategy would take {} ({:+.0f}%): {}", text_of(alone),
                                                             100 * (alone / seconds - 1), planner.to_string(*single)));
  plan.why.push_back(fmt::format("limited by {}; the fullest rank needs {} of {}", planner::limit_of(account), format_bytes(Bytes{account.memory}),
                                 format_bytes(plan.job.run.memory_budget)));
  return plan;
}

}  // namespace switchyard::apps
