#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.hpp"
#include "base/status_line.hpp"
#include "base/units.hpp"
#include "base/wrapped_text.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "compiler/print.hpp"
#include "config/hardware.hpp"
#include "first_step.hpp"
#include "job_options.hpp"
#include "models/build.hpp"
#include "open_job.hpp"
#include "plan_job.hpp"
#include "progress.hpp"

namespace switchyard::apps {
namespace {

struct ShowOptions {
  std::string what, cluster;
  JobOptions job;
  int rank = -1, bucket = 0, step = 1;
  bool shards = false;
};

cluster::Cluster cluster_of(const ShowOptions& options, const config::Job& job) {
  if (options.cluster.empty()) {  // threads of one process, which is how `train` runs it here
    cluster::Cluster here = cluster::uniform(1, job.run.ranks);
    here.overlaps_collectives = false;
    return here;
  }
  const cluster::Cluster cluster = config::load_cluster(options.cluster, job.run.ranks);
  if (cluster.ranks() != job.run.ranks)
    user_error("--cluster {} has {} ranks, but the job has {}. Change the cluster or run.ranks.", options.cluster,
               cluster.ranks(), job.run.ranks);
  return cluster;
}

// A table of the buckets, the longest first. A strategy that is too long for its column has lines of its own.
std::string buckets_text(const config::Job& job, const compiler::Plans& plans) {
  constexpr size_t kFigures = 62;
  std::string text = fmt::format("{:<12}{:<14}{:<12}{:>12}{:>8}    strategy\n", "tokens to", "schedule", "recompute",
                                 "micro-batch", "ranks");
  const std::vector<batch::BucketSpec> specs = compiler::step_settings(job, plans).buckets;
  for (size_t i = 0; i < job.buckets.size(); ++i) {
    const config::Strategy& strategy = job.buckets[i].strategy;
    const bool fits = kFigures + strategy.name.size() <= kTextColumns;
    text +=
        fmt::format("{:<12}{:<14}{:<12}{:>12}{:>8}{}\n", job.buckets[i].max_length, config::name_of(strategy.schedule),
                    config::name_of(strategy.recompute), batch::micro_batch_capacity(specs[i]), strategy.ranks().size(),
                    fits ? "    " + strategy.name : "");
    if (!fits) text += wrapped("    " + strategy.name, 6) + "\n";
  }
  return text;
}

// The memory that a rank may use, if the job or the cluster says.
std::string limit_text(const config::Job& job) {
  if (job.run.memory_budget.count == 0) return "no memory budget";
  return fmt::format("each rank may use {}", format_bytes(job.run.memory_budget));
}

std::string plan_text(const config::Job& job, const compiler::Plans& plans, const ShowOptions& options) {
  const PlannedStep step = planned_step(job, plans, options.step - 1, lengths_of_step(job, options.step - 1));
  return fmt::format("{}{}\nMemory in step {}, which has {} documents; {}\n{}{}", buckets_text(job, plans),
                     options.shards ? "\n" + compiler::print_plan(plans) : "", options.step, step.lengths.size(),
                     limit_text(job), compiler::print_memory(step.program, step.plan, plans),
                     checkpoint_copy_line(checkpoint_copy(job, plans)));
}

std::string batch_text(const config::Job& job, const compiler::Plans& plans, const ShowOptions& options) {
  const i64 index = options.step - 1;
  const std::vector<i64> lengths = lengths_of_step(job, index);
  const compiler::StepSettings settings = compiler::step_settings(job, plans);
  std::vector<std::string> names;
  for (const config::Bucket& bucket : job.buckets) names.push_back(bucket.strategy.name);
  return compiler::print_documents(compiler::planned_batch(settings, index, lengths), lengths, settings.buckets,
                                   settings.work, names);
}

std::string program_text(const config::Job& job, const compiler::Plans& plans, const ShowOptions& options) {
  const PlannedStep step = planned_step(job, plans, options.step - 1, lengths_of_step(job, options.step - 1));
  return fmt::format(
      "{} documents, {} labels\n{}\n"
      "number, task, queue on each rank (s switching, c compute, p point to point, b bulk, g gather, x collective), "
      "waits, transfers in bytes\n{}Tasks that only allocate a unit's working parameters are left out.\n",
      step.lengths.size(), step.plan.valid_tokens, compiler::print_batch(step.plan),
      compiler::print_program(step.program, step.plan, plans, options.rank));
}

// Without a job file a model needs no strategy, and the context is that of the model. A cluster file says which devices
// there are, and what memory they have.
config::Job job_of(ShowOptions options) {
  if (options.what == "model" && options.job.file.empty()) {
    if (options.job.strategy.empty()) options.job.strategy = "1,1,1";
    options.job = with_context(std::move(options.job));
  }
  config::Errors errors;
  config::Job job = open_job(draft_of(options.job, JobKind::given, errors, options.cluster), errors);
  if (!config::is_cluster_file(options.cluster)) return job;
  const cluster::Hardware hardware = config::load_hardware(options.cluster, job.run.ranks);
  config::resolve_device(job, hardware.device.type);
  return within_memory(std::move(job), hardware);
}

int run_show(const ShowOptions& options) {
  if (options.what.empty())
    user_error("show needs one of model, strategy, plan, batch and program, such as switchyard show plan JOB.toml.");
  const config::Job job = job_of(options);
  if (options.what == "model") {
    const ir::Graph graph = models::build(job.model.config, compiler::precision_of(job.run), models::Output::loss);
    fmt::print("{}", compiler::print_model(graph, compiler::work_model(job.model.config), job.batch.context));
    return 0;
  }
  if (options.what == "strategy") {
    if (options.bucket >= static_cast<int>(job.buckets.size()))
      user_error("--bucket {}: the job has buckets 0 to {}, the longest first.", options.bucket,
                 job.buckets.size() - 1);
    fmt::print("{}", config::to_json(job.buckets[static_cast<size_t>(options.bucket)].strategy));
    return 0;
  }
  std::optional<StatusLine> status(std::in_place, "show", "planning transfers", lines_of(false));
  const compiler::Plans plans = compiler::plans_of(job, cluster_of(options, job));
  if (options.rank >= plans.cluster().ranks())
    user_error("--rank {}: the job has ranks 0 to {}.", options.rank, plans.cluster().ranks() - 1);
  status->now(fmt::format("assembling step {}", options.step));
  const std::string text = options.what == "plan"    ? plan_text(job, plans, options)
                           : options.what == "batch" ? batch_text(job, plans, options)
                                                     : program_text(job, plans, options);
  status.reset();
  fmt::print("{}{}", synthetic_line(job), text);
  return 0;
}

}  // namespace

void add_show(CLI::App& app, Action& action) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand("show",
                                         "Prints a job's model, a strategy as a file to edit, which rank holds what, "
                                         "where a step's documents lie, or its tasks on every rank");
  command->add_option("what", options->what, "model, strategy, plan, batch or program")
      ->type_name("WHAT REQUIRED")
      ->check(CLI::IsMember({"model", "strategy", "plan", "batch", "program"}));
  add_job_options(*command, options->job, JobKind::given);
  command->add_flag("--shards", options->shards,
                    "plan: also lists which part of every parameter each rank has under each strategy");
  command->add_option("--bucket", options->bucket, "strategy: number of the bucket, from 0, the longest first")
      ->check(at_least(0));
  command->add_option("--step", options->step, "plan, batch, program: the step whose documents are taken")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_option("--rank", options->rank, "program: prints only the tasks of this rank")->check(at_least(0));
  command
      ->add_option("--cluster", options->cluster,
                   "Hosts x devices, e.g. 2x8, a hostfile, or a cluster's name or file (default: all ranks on one "
                   "host)")
      ->type_name("HOSTSxDEVICES|NAME|FILE");
  command->callback([options, &action] { action.run = [options] { return run_show(*options); }; });
}

}  // namespace switchyard::apps
