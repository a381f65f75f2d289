#include <fmt/format.h>

#include <cstdlib>
#include <thread>

#include <CLI/CLI.hpp>

#include "base/errors.hpp"
#include "commands.hpp"
#include "open_job.hpp"
#include "plan_job.hpp"
#include "train/machine_profile.hpp"
#include "train/train_job.hpp"

namespace switchyard::apps {
namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

// Without strategies it is planned first, for the machine that it will train on.
config::Job job_to_train(const std::string& path, const std::vector<std::string>& sets, const comm::Launch& launch) {
  if (!leaves_strategies_open(path, sets)) return open_job(path, sets);
  const auto say = [&](const std::string& text) {
    if (launch.rank == 0) fmt::print(stderr, "plan: {}\n", text);
  };
  const config::Job open = open_unplanned(path, sets, launch.distributed ? launch.size : static_cast<int>(std::thread::hardware_concurrency()));
  const config::Profile profile = train::machine_profile(open, launch, train::profile_folder(variable), say);
  const ChosenPlan chosen = choose_plan(open, profile.hardware);
  for (const std::string& line : chosen.why) say(line);
  return chosen.job;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  struct Options {
    std::string job, out, resume;
    std::vector<std::string> sets;
    int ranks = 0;
    i64 steps = 0;
    bool help_keys = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("train", "Trains a job: ranks as threads of this process, or one rank under mpirun, srun or torchrun");
  command->add_option("job", options->job, "Job file")->type_name("JOB.toml");
  command->add_option("--set", options->sets, "Overrides a key of the job, e.g. run.steps=10")->type_name("KEY=VALUE");
  command->add_option("--ranks", options->ranks, "Same as --set run.ranks=N");
  command->add_option("--steps", options->steps, "Same as --set run.steps=N");
  command->add_option("--out", options->out, "Run folder for log, events and checkpoints; same as --set run.out=DIR");
  command->add_option("--resume", options->resume, "A checkpoint, or a run folder whose newest complete one is taken");
  command->add_flag("--help-keys", options->help_keys, "Prints every key of a job file");
  command->callback([options, &action] {
    action = [options] {
      if (options->help_keys) {
        fmt::print("{}", config::help_keys());
        return 0;
      }
      if (options->job.empty())
        throw UserError("train needs a job file: switchyard train JOB.toml. `switchyard train --help-keys` lists its keys.");
      std::vector<std::string> sets = options->sets;
      if (options->ranks > 0) sets.push_back(fmt::format("run.ranks={}", options->ranks));
      if (options->steps > 0) sets.push_back(fmt::format("run.steps={}", options->steps));
      if (!options->out.empty()) sets.push_back(fmt::format("run.out=\"{}\"", options->out));
      const comm::Launch launch = comm::launch_from_environment();
      train::train({job_to_train(options->job, sets, launch), options->resume}, launch);
      return 0;
    };
  });
}

}  // namespace switchyard::apps
