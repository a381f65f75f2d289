#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/environment.hpp"
#include "base/errors.hpp"
#include "base/messages.hpp"
#include "base/status_line.hpp"
#include "comm/collectives.hpp"
#include "comm/joint_work.hpp"
#include "commands.hpp"
#include "config/emulated_cluster.hpp"
#include "config/hardware.hpp"
#include "files/disk.hpp"
#include "first_step.hpp"
#include "open_job.hpp"
#include "plan_job.hpp"
#include "report/plan_file.hpp"
#include "train/channels.hpp"
#include "train/emulation.hpp"
#include "train/host_share.hpp"
#include "train/machine_profile.hpp"
#include "train/rank.hpp"
#include "train/ranks.hpp"
#include "train/run_log.hpp"
#include "train/train_job.hpp"

namespace switchyard::apps {
namespace {

// Measuring the machine takes a minute or two, which nobody should wait for a job that its budget can't hold. Memory
// doesn't depend on rates, so that any device stands for those that would be measured.
cluster::Hardware unmeasured(const config::Job& job, int hosts) {
  cluster::Hardware any = config::load_hardware("h100-80g:1x1");
  any.hosts = hosts;
  any.devices_per_host = job.run.ranks / hosts;
  any.device.memory = job.run.memory_budget;
  any.device.reserve = {};
  return any;
}

// For a job whose strategies are to be planned.
void refuse_if_no_strategy_fits(const config::Job& job) {
  if (job.run.memory_budget.count == 0) return;
  planner::Request request = request_of(job, unmeasured(job, 1), 1);
  request.allowed = {};
  planner::Planner(std::move(request)).check_fits();
}

// For a job with strategies.
void refuse_if_its_first_step_does_not_fit(const config::Job& job, const std::optional<cluster::Hardware>& emulated) {
  if (job.run.memory_budget.count == 0) return;
  const cluster::Hardware any = unmeasured(job, emulated ? emulated->hosts : 1);
  const compiler::Plans plans = compiler::plans_of(job, any.placement());
  const PlannedStep first = first_steps(job, plans, any, 1, {}).front();
  train::require_room(first.program, first.plan, plans, train::rank_settings_of(job, emulated));
}

// The emulated cluster's ranks stand for those that the job does not give.
std::optional<cluster::Hardware> emulated_by(config::JobDraft& draft, const config::Errors& errors) {
  if (draft.job.run.emulate.empty()) return std::nullopt;
  cluster::Hardware emulated = config::emulated_hardware(draft.job.run.emulate, ranks_of(draft, errors));
  if (draft.misses("run.ranks")) {
    draft.job.run.ranks = emulated.ranks();
    draft.given["run.ranks"] = "run.emulate";
  }
  return emulated;
}

// The plans that `plan --out` wrote beside the job, for the run's folder, which rank 0 writes; none if the job was
// changed since, so that other plans would be compared.
std::string plan_beside(const std::string& path, const config::Job& job) {
  const std::filesystem::path plan = report::plan_path_of(path);
  if (!std::filesystem::exists(plan)) return "";
  std::string text = files::read_text(plan);
  if (report::is_plan_of(text, job, plan.string())) return text;
  print_message(stderr, "{}: model, batches or buckets are not those of the job now, so the report goes without it\n",
                plan.string());
  return "";
}

// Each process of a launch finds the same plan, in a time that depends on what its host has to do beside: they wait for
// each other.
std::pair<ChosenPlan, train::JoinedFabric> plan_together(const config::Job& job, const cluster::Hardware& hardware,
                                                         const comm::Launch& launch) {
  train::JoinedFabric joined = train::join_ranks(job.run.ranks, launch, train::fabric_options(job.fabric));
  if (!joined) return {choose_plan(job, hardware), nullptr};
  comm::JointWork together(*joined, comm::everyone(*joined, train::kSearchChannel),
                           comm::sign_interval(train::timeout_of(job.fabric)));
  std::optional<ChosenPlan> chosen;
  together.run("plan", [&](const auto&) { chosen = choose_plan(job, hardware); });
  return {*std::move(chosen), std::move(joined)};
}

// A job without strategies is planned first, for the machine that it will train on, or the cluster that it emulates.
train::TrainSettings job_to_train(const std::string& path, const std::vector<config::Override>& overrides,
                                  const comm::Launch& launch) {
  config::Errors errors;
  config::JobDraft draft = config::load_draft(path, overrides, errors);
  std::optional<cluster::Hardware> emulated = emulated_by(draft, errors);
  const bool planned = leaves_strategies_open(draft, errors), sets_smallest = draft.has("compression.smallest");
  const int ranks = launch.distributed ? launch.size : static_cast<int>(std::thread::hardware_concurrency());
  config::Job job = planned ? open_unplanned(draft, errors, ranks) : open_job(draft, errors);
  config::resolve_device(job, emulated ? cluster::DeviceType::cpu : train::device_type());
  if (!job.run.profile.empty() && ::access(job.run.profile.c_str(), R_OK) != 0)  // also where it has no use
    user_error("run.profile = \"{}\" can't be read: {}. Check the path, or leave it out.", job.run.profile,
               std::generic_category().message(errno));
  if (emulated) {
    train::require_emulation(job, *emulated, launch);
    job = within_memory(std::move(job), *emulated);
  }
  const bool first = launch.rank == 0, chooses = job.run.choose_buckets;
  const bool known = emulated && config::has_rates(*emulated);
  std::string plan_json = planned || !first ? "" : plan_beside(path, job);
  if (!planned && !emulated && !chooses) return {.job = std::move(job), .plan_json = std::move(plan_json)};
  std::optional<StatusLine> status;
  if (first) {
    status.emplace("plan", "checking the memory");
    for (const std::string& line : train::not_kept(job)) status->say(line);
  }
  const auto say = [&](const std::string& text) {
    if (status) status->say("plan: " + text);
  };
  if (planned) refuse_if_no_strategy_fits(job);
  if (status) status->now(known ? "reading the cluster" : "reading the machine's profile");
  const auto before_measuring = [&] {
    if (status) status->now("checking the memory");
    if (!planned) refuse_if_its_first_step_does_not_fit(job, emulated);
    if (status) status->now("measuring this machine");
  };
  const cluster::Hardware hardware = known ? *emulated
                                           : train::machine_profile(job, launch, train::profile_folder(environment),
                                                                    say, train::profile, emulated, before_measuring)
                                                 .hardware;
  if (emulated) emulated = hardware;
  if (!planned)
    return {.job = std::move(job),
            .plan_json = std::move(plan_json),
            .warned = true,
            .emulated = std::move(emulated),
            .hardware = chooses ? std::optional(hardware) : std::nullopt};
  if (!sets_smallest) job = with_break_even(std::move(job), hardware);
  if (status) status->now("searching for plans");
  const auto [chosen, joined] = plan_together(job, hardware, launch);
  for (const std::string& line : chosen.why) say(line);
  return {.job = chosen.job,
          .plan_json = report::plan_text(chosen.compared, chosen.job),
          .warned = true,
          .joined = joined,
          .emulated = std::move(emulated),
          .hardware = chooses ? std::optional(hardware) : std::nullopt};
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  struct Options {
    std::string job;
    std::optional<std::string> out, resume, emulate;
    std::vector<std::string> sets;
    std::optional<i64> ranks, steps;
    bool force = false, new_data = false, help_keys = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "train",
      "Trains a job: all ranks as threads of this process, or one rank per process under mpirun, srun or torchrun");
  command->add_option("job", options->job, "Job file")->type_name("JOB.toml");
  command->add_option("--set", options->sets, "Overrides a key of the job, e.g. run.steps=10")->type_name("KEY=VALUE");
  command->add_option("--ranks", options->ranks, "Same as --set run.ranks=N");
  command->add_option("--steps", options->steps, "Same as --set run.steps=N");
  command
      ->add_option("--emulate", options->emulate,
                   "Times of steps are those on this cluster, whose devices the cores of this machine emulate; same as "
                   "--set run.emulate=CLUSTER")
      ->type_name("2x4:200Mbit/s,800Mbit/s,40MiB");
  command->add_option("--out", options->out, "Run folder for log, events and checkpoints; same as --set run.out=DIR");
  CLI::Option* resume =
      command->add_option("--resume", options->resume,
                          "Checkpoint to resume from, or a run folder, whose newest complete checkpoint is taken");
  command
      ->add_flag("--new-data", options->new_data,
                 "Resumes with other data: sources that the checkpoint doesn't know begin, all others go on")
      ->needs(resume);
  command->add_flag("--force", options->force, "Starts anew in a used run folder: what it holds is set aside")
      ->excludes(resume);
  command->add_flag("--help-keys", options->help_keys, "Prints every key of a job file");
  command->callback([options, &action] {
    action.run = [options] {
      if (options->help_keys) {
        fmt::print("{}", config::help_keys());
        return 0;
      }
      if (options->job.empty())
        throw UserError(
            "train needs a job file: switchyard train JOB.toml. `switchyard train --help-keys` lists its keys.");
      std::vector<config::Override> overrides = config::overrides_of(options->sets);
      const auto add = [&](const char* option, const char* key, const auto& value) {
        if (!value) return;
        overrides.push_back({fmt::format("{} {}", option, *value), key, *value});
      };
      add("--ranks", "run.ranks", options->ranks);
      add("--steps", "run.steps", options->steps);
      add("--out", "run.out", options->out);
      add("--emulate", "run.emulate", options->emulate);
      const comm::Launch launch = comm::launch_from_environment();
      train::TrainSettings settings = job_to_train(options->job, overrides, launch);
      settings.resume = options->resume.value_or("");
      settings.force = options->force;
      settings.new_data = options->new_data;
      const int stopped_by = train::train(settings, launch);
      return stopped_by == 0 ? 0 : 128 + stopped_by;
    };
  });
}

}  // namespace switchyard::apps
