#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.hpp"
#include "commands.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "compiler/print.hpp"
#include "first_step.hpp"
#include "models/build.hpp"
#include "open_job.hpp"

namespace switchyard::apps {
namespace {

struct Options {
  std::string what, job, cluster;
  std::vector<std::string> sets;
  int rank = -1, bucket = 0;
};

cluster::Cluster cluster_of(const Options& options, const config::Job& job) {
  if (options.cluster.empty()) {  // as threads of one process, which is how `train` runs it here
    cluster::Cluster here = cluster::uniform(1, job.run.ranks);
    here.overlaps_collectives = false;
    return here;
  }
  const cluster::Cluster cluster = cluster::from_spec(options.cluster);
  if (cluster.ranks() != job.run.ranks)
    user_error("--cluster {} has {} ranks, but the job has {}. Change the cluster or run.ranks.", options.cluster,
               cluster.ranks(), job.run.ranks);
  return cluster;
}

void show_plan(const config::Job& job, const compiler::Plans& plans) {
  fmt::print("{}", compiler::print_plan(plans));
  const PlannedStep step = first_step(job, plans);
  fmt::print("memory in the first step, which has {} documents\n{}{}", step.lengths.size(),
             compiler::print_memory(step.program, step.plan, plans), checkpoint_copy_line(checkpoint_copy(job, plans)));
}

void show_program(const config::Job& job, const compiler::Plans& plans, int rank) {
  const PlannedStep step = first_step(job, plans);
  fmt::print("{} documents, {} labels\n{}\n", step.lengths.size(), step.plan.valid_tokens,
             compiler::print_batch(step.plan));
  fmt::print(
      "number, task, queue on each rank (s switching, c compute, p point to point, b bulk), waits, transfers in "
      "bytes\n{}",
      compiler::print_program(step.program, step.plan, plans, rank));
  fmt::print("Tasks that only allocate a unit's working parameters are left out.\n");
}

int run(const Options& options) {
  const config::Job job = open_job(options.job, config::overrides_of(options.sets));
  if (options.what == "model") {
    fmt::print("{}", compiler::print_model(
                         models::build(job.model.config, compiler::precision_of(job.run), models::Output::loss)));
    return 0;
  }
  if (options.what == "strategy") {
    if (options.bucket >= static_cast<int>(job.buckets.size()))
      user_error("--bucket {}: the job has buckets 0 to {}, the longest first.", options.bucket,
                 job.buckets.size() - 1);
    fmt::print("{}", config::to_json(job.buckets[static_cast<size_t>(options.bucket)].strategy));
    return 0;
  }
  const compiler::Plans plans = compiler::plans_of(job, cluster_of(options, job));
  if (options.rank >= plans.cluster().ranks())
    user_error("--rank {}: the job has ranks 0 to {}.", options.rank, plans.cluster().ranks() - 1);
  if (options.what == "plan")
    show_plan(job, plans);
  else
    show_program(job, plans, options.rank);
  return 0;
}

}  // namespace

void add_show(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("show",
                                         "Prints a job's model, a strategy as a file to edit, which rank holds what, "
                                         "or the tasks of every rank in the first step");
  command->add_option("what", options->what, "model, strategy, plan or program")
      ->required()
      ->check(CLI::IsMember({"model", "strategy", "plan", "program"}));
  command->add_option("job", options->job, "Job file")->required()->type_name("JOB.toml");
  command->add_option("--bucket", options->bucket, "strategy: number of the bucket, from 0, the longest first")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--rank", options->rank, "program: prints only the tasks of this rank")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--cluster", options->cluster,
                   "Hosts x devices, e.g. 2x8, or a hostfile (default: all ranks on one host)")
      ->type_name("HOSTSxDEVICES|FILE");
  command->add_option("--set", options->sets, "Overrides a key of the job")->type_name("KEY=VALUE");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace switchyard::apps
