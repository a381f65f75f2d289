#include "plan_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "config/job_keys.hpp"
#include "config/job_reader.hpp"
#include "first_step.hpp"
#include "open_job.hpp"
#include "planner/explain.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::apps {
namespace {

constexpr int kJudged = 8;        // plans that the simulator compares
constexpr int kFewestSteps = 2, kMostSteps = 16;  // whose documents stand for all: as many as have so many documents
constexpr i64 kDocuments = 256;
constexpr const char* kAuto = "auto";

config::JobDraft draft_of(const std::string& path, const std::vector<std::string>& sets) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  config::Faults faults;  // told when the job is opened
  return file ? config::read_draft(text.str(), path, sets, faults) : config::JobDraft{};
}

bool is_auto(const config::BucketDraft& bucket) { return bucket.text == kAuto; }

int steps_that_stand_for_all(const config::Job& job) {
  const auto of_a_step = static_cast<i64>(lengths_of_steps(job, 1).front().size());
  return static_cast<int>(std::clamp<i64>((kDocuments + of_a_step - 1) / of_a_step, kFewestSteps, kMostSteps));
}

// By the simulator, mean over the first steps.
report::Candidate simulated(const std::string& name, const config::Job& job, const cluster::Hardware& hardware, int steps) {
  const compiler::Plans plans = compiler::plans_of(job, hardware.placement());
  report::Candidate candidate{.name = name, .seconds = 0.0, .peak = 0};
  for (const PlannedStep& step : first_steps(job, plans, steps)) {
    *candidate.peak = std::max(*candidate.peak, compiler::fullest_rank(step.program, step.plan, plans).second.total);
    *candidate.seconds += simulator::simulate(step.program, step.plan, plans, hardware).step_seconds / steps;
  }
  candidate.fits = *candidate.peak <= job.run.memory_budget.count;
  return candidate;
}

// The planner's best, and the best of one strategy, if any fits.
std::vector<planner::Choice> choices_of(const planner::Planner& planner) {
  std::vector<planner::Choice> choices = planner.plan(kJudged).best;
  try {
    const planner::Choice single = planner.plan(1, 1).best.front();
    if (std::ranges::none_of(choices, [&](const planner::Choice& choice) { return choice.phases == single.phases && choice.zero == single.zero; })) choices.push_back(single);
  } catch (const UserError&) {
  }
  return choices;
}

// The planner wouldn't keep to them.
void refuse_settings(const config::JobDraft& draft, const std::string& path) {
  for (const config::Key<config::JobDraft>& key : config::job_keys())
    if ((key.name.starts_with("parallel.") || key.name == "run.order") && draft.has(key.name))
      user_error("{}: {} is set, but the strategies are left to the planner, which chooses that, too. Leave it out, or give the buckets strategies.",
                 path, key.name);
}

std::string text_of(double seconds) { return format_duration(Seconds{seconds}); }

}  // namespace

bool leaves_strategies_open(const std::string& path, const std::vector<std::string>& sets) {
  const config::JobDraft draft = draft_of(path, sets);
  const auto planned = std::ranges::count_if(draft.buckets, is_auto);
  if (planned > 0 && planned < static_cast<std::ptrdiff_t>(draft.buckets.size()))
    user_error("{}: {} of {} buckets have strategy = \"auto\". The planner chooses all of them or none: give each a strategy, or none.", path, planned,
               draft.buckets.size());
  const bool open = draft.job.batch.context > 0 && draft.parallel_preset.empty() && planned == static_cast<std::ptrdiff_t>(draft.buckets.size());
  if (open) refuse_settings(draft, path);
  return open;
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
  job.run.order = planner.order(choice);
  // Within it a step prefetches less, rather than running out of memory.
  const i64 device = planner.request().hardware.device.memory.count;
  if (job.run.memory_budget.count == 0 || job.run.memory_budget.count > device) job.run.memory_budget = {device};
  return job;
}

ChosenPlan choose_plan(const config::Job& job, const cluster::Hardware& hardware) {
  const int steps = steps_that_stand_for_all(job);
  const planner::Planner planner(request_of(job, hardware, steps));
  const std::vector<planner::Choice> choices = choices_of(planner);
  ChosenPlan plan;
  for (const planner::Choice& choice : choices) plan.compared.push_back(simulated(planner.to_string(choice), planned_job(job, planner, choice), hardware, steps));
  // One that fits, if any does; otherwise training tells what lacks.
  const auto order = [&](size_t i) { return std::pair(!plan.compared[i].fits, *plan.compared[i].seconds); };
  const auto alone = [&](size_t i) { return choices[i].phases.size() == 1 && plan.compared[i].fits; };
  size_t best = 0;
  std::optional<size_t> single;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (order(i) < order(best)) best = i;
    if (alone(i) && (!single || order(i) < order(*single))) single = i;
  }
  report::Candidate& chosen = plan.compared[best];
  chosen.chosen = true;
  plan.job = planned_job(job, planner, choices[best]);
  plan.why.push_back(fmt::format("{} a step predicted on {}: {}", text_of(*chosen.seconds), hardware.name, chosen.name));
  if (choices[best].phases.size() == 1)
    plan.why.push_back("one strategy for all documents; no switch pays here");
  else if (!single)
    plan.why.push_back("no single strategy fits the memory");
  else
    plan.why.push_back(fmt::format("the best single strategy would take {} ({:+.0f}%): {}", text_of(*plan.compared[*single].seconds),
                                   100 * (*plan.compared[*single].seconds / *chosen.seconds - 1), plan.compared[*single].name));
  plan.why.push_back(fmt::format("limited by {}; the fullest rank needs {} of {}", planner::limit_of(planner.account(choices[best])),
                                 format_bytes(Bytes{*chosen.peak}), format_bytes(plan.job.run.memory_budget)));
  return plan;
}

}  // namespace switchyard::apps
