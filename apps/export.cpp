#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/errors.hpp"
#include "base/status_line.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/model_folder.hpp"

namespace switchyard::apps {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string from, out, dtype = "fp32";
  std::optional<i64> step;
  i64 vocab_multiple = 1;
};

/// The checkpoint that is meant, verified.
fs::path checkpoint_of(const ExportOptions& options) {
  if (!options.step) return files::find_checkpoint(options.from).folder;
  std::vector<i64> steps;
  for (const files::CheckpointPlace& place : files::list_checkpoints(options.from)) {
    if (place.step == *options.step) return files::find_checkpoint(place.folder).folder;
    steps.push_back(place.step);
  }
  if (steps.empty())
    user_error("{} is no run folder with checkpoints, in which --step could choose one. Give the run folder.",
               options.from);
  user_error("{} has no checkpoint of step {}, but of {}. Give --step one of these.", options.from, *options.step,
             fmt::join(steps, ", "));
}

int run_export(const ExportOptions& options) {
  StatusLine status("export", "verifying the checkpoint");
  const files::ExportSettings settings{.dtype = options.dtype == "bf16" ? DType::bf16 : DType::f32,
                                       .vocab_multiple = options.vocab_multiple};
  for (bool done = false; !done;) {
    const fs::path checkpoint = checkpoint_of(options);
    status.now("writing the model");
    try {
      if (!files::export_model(checkpoint, options.out, settings))
        status.say(fmt::format("{} has no tokenizer, as neither its data nor the model it started from had one",
                               checkpoint.string()));
      done = true;
    } catch (const std::exception&) {
      if (fs::exists(checkpoint)) throw;  // else the run goes on and has removed it, for newer ones
    }
  }
  fmt::print("{}\n", options.out);
  if (std::fflush(stdout) != 0)
    throw ClusterError(fmt::format("cannot write to standard output: {}. The model in {} is complete.",
                                   std::generic_category().message(errno), options.out));
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Writes a checkpoint's model as a folder for Hugging Face's tools");
  command->add_option("run", options->from, "Checkpoint, or a run folder, whose newest complete checkpoint is taken")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  command->add_option("--out", options->out, "Folder to write, new or empty")->required()->type_name("DIR");
  command->add_option("--dtype", options->dtype, "Type of the weights (default: fp32, as in the checkpoint)")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->type_name("bf16|fp32");
  command->add_option("--step", options->step, "Takes the run's checkpoint of this step instead of the newest")
      ->check(at_least(0))
      ->type_name("N");
  command
      ->add_option("--pad-vocab", options->vocab_multiple,
                   "Adds rows to the vocabulary, each the mean of the others, up to a multiple of this (default: none)")
      ->check(CLI::Range(i64{1}, i64{1} << 20))
      ->type_name("MULTIPLE");
  command->callback([options, &action] { action.run = [options] { return run_export(*options); }; });
}

}  // namespace switchyard::apps
