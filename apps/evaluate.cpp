#include "train/evaluate.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/errors.hpp"
#include "base/status_line.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "config/job_keys.hpp"
#include "data/corpus.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/hf_config.hpp"
#include "open_job.hpp"
#include "progress.hpp"
#include "train/host_share.hpp"

namespace switchyard::apps {
namespace {

namespace fs = std::filesystem;

struct EvaluateOptions {
  std::string model, data, strategy;
  std::optional<i64> context, sequences;
  std::optional<int> ranks;
  std::vector<std::string> sets;
  bool json = false;
};

// The folder with the weights.
std::string folder_of(const std::string& model) {
  if (!fs::is_directory(model))
    user_error("there is no folder {}. Give a run folder, a checkpoint, or a folder with config.json.", model);
  if (fs::exists(fs::path(model) / "config.json")) return model;
  return (files::find_checkpoint(model).folder / "model").string();
}

// The longest document, or what the model was made for if that is shorter.
i64 context_of(const std::string& folder, const std::string& data) {
  const data::Corpus corpus = data::Corpus::open(data);
  i64 longest = 1;
  for (i64 document = 0; document < corpus.documents(); ++document)
    longest = std::max(longest, corpus.length(document));
  const config::ModelConfig model = files::read_hf_config(folder);
  const i64 positions = config::by_document(model.rope_scaling) ? 0 : model.max_positions;  // 0: any number
  return positions > 0 ? std::min(longest, positions) : longest;
}

// Refuses what a --set would change of the function that a checkpoint's weights were trained for, and what an
// evaluation doesn't use.
void check_sets(const EvaluateOptions& options) {
  const bool trained = !fs::exists(fs::path(options.model) / "config.json");
  for (const config::Override& set : config::overrides_of(options.sets)) {
    const auto key = std::ranges::find(config::job_keys(), set.key, &config::KeyInfo::name);
    if (key == config::job_keys().end()) continue;  // reported with the others
    if (trained && key->name.starts_with("model.") && key->name != "model.path" && !key->same_function)
      user_error("{}: {} is a run or its checkpoint, whose weights were trained with its own {}. Leave it out.",
                 set.where, options.model, key->name);
    if (key->name == "batch.context" && !options.context) user_error("{}: give --context instead.", set.where);
    const auto inside = [&](const char* section) { return key->name.starts_with(section); };
    constexpr std::array<std::string_view, 7> kOfTraining{
        "run.out",       "run.steps",     "run.checkpoint_every", "run.keep_checkpoints",
        "run.save_last", "run.log_every", "run.trace_step"};
    if (inside("optimizer.") || inside("validation.") || inside("log.") ||
        std::ranges::count(kOfTraining, key->name) > 0)
      user_error("{}: {} has no effect, as nothing is trained. Leave it out.", set.where, key->name);
  }
}

config::Job job_of(const EvaluateOptions& options, const comm::Launch& launch) {
  const std::string folder = folder_of(options.model);
  check_sets(options);
  const i64 context = options.context ? *options.context : context_of(folder, options.data);
  if (const std::string fault = config::out_of_range(config::job_key("batch.context"), context); !fault.empty())
    user_error("--context {} {}.", context, fault);
  if (context < 2)
    user_error("{}: a document of one token has no next token to predict. Give {}.",
               options.context ? fmt::format("--context {}", context) : options.data,
               options.context ? "at least 2" : "longer documents");
  const int ranks = options.ranks.value_or(launch.distributed ? launch.size : 1);
  const std::string strategy = options.strategy.empty() ? fmt::format("dp={}", ranks) : options.strategy;
  std::vector<config::Override> overrides;
  const auto add = [&](const std::string& option, const char* key, const auto& value) {
    overrides.push_back({fmt::format("{} {}", option, value), key, value});
  };
  add("the model", "model.path", folder);
  add("--data", "data.path", options.data);
  for (const char* key : {"batch.context", "bucket.0.max_length"})
    add(options.context ? "--context" : "without --context the longest document has", key, context);
  add("--ranks", "run.ranks", static_cast<i64>(ranks));
  add("--strategy", "bucket.0.strategy", strategy);
  std::ranges::copy(config::overrides_of(options.sets), std::back_inserter(overrides));
  config::Errors errors;
  const config::JobDraft draft =
      config::read_draft("[run]\nsteps = 1\n[batch]\nsequences = 1\n[[bucket]]\nmax_length = 1\nstrategy = \"1,1,1\"\n",
                         "the command line", overrides, errors);
  config::Job job = open_job(draft, errors);
  config::resolve_device(job, train::device_type());
  return job;
}

void print_scores(const train::ValidationRecord& record) {
  const auto row = [](const std::string& name, const train::PartRecord& part) {
    if (part.loss)
      fmt::print("{:<16}{:>10.4f}{:>14.2f}{:>12}\n", name, *part.loss, std::exp(*part.loss),
                 format_count(static_cast<double>(part.tokens)));
  };
  fmt::print("{:<16}{:>10}{:>14}{:>12}\n", "documents", "loss", "perplexity", "tokens");
  row("all", record.all);
  for (const train::PartRecord& part : record.lengths) row(part.name, part);
}

int run_evaluate(const EvaluateOptions& options) {
  const comm::Launch launch = comm::launch_from_environment();
  train::EvaluateSettings settings{.job = job_of(options, launch), .sequences = options.sequences.value_or(0)};
  std::optional<StatusLine> status;
  if (launch.rank == 0) status.emplace("evaluate", "loading the model", lines_of(options.json));
  settings.progress = [&](i64 done, i64 all) {
    if (status)
      status->now(fmt::format("evaluating, {} of {} tokens", format_count(static_cast<double>(done)),
                              format_count(static_cast<double>(all))));
  };
  const std::optional<train::ValidationRecord> record = train::evaluate(settings, launch);
  status.reset();
  if (!record) return 0;  // rank 0 has the result
  print_scores(*record);
  if (options.json) {
    nlohmann::ordered_json object = train::to_json(*record);
    object.erase("step");
    fmt::print("{}\n", object.dump());
  }
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, Action& action) {
  auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command = app.add_subcommand(
      "evaluate", "Prints the loss of a model (run, checkpoint or folder) on documents of `data prepare`");
  command
      ->add_option("model", options->model,
                   "Run folder, whose newest complete checkpoint is taken, a checkpoint, or a folder with config.json")
      ->required()
      ->type_name("RUN|CHECKPOINT|FOLDER");
  command->add_option("--data", options->data, "Folder that `data prepare` made, with the tokenizer of the model")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--context", options->context,
                   "Longer documents are split (default: the longest document, or the model's positions if these are "
                   "fewer)")
      ->check(at_least(1))
      ->type_name("TOKENS");
  command->add_option("--sequences", options->sequences, "Number of documents (default, and at most: all, once each)")
      ->check(at_least(1))
      ->type_name("N");
  command->add_option("--ranks", options->ranks, "Number of ranks (default: 1, or as many as were started)")
      ->check(at_least(1));
  command->add_option("--strategy", options->strategy, "Strategy of all documents (default: dp over the ranks)");
  command->add_option("--set", options->sets, "Sets a key of a job, e.g. run.precision=fp32")->type_name("KEY=VALUE");
  command->add_flag("--json", options->json, "One JSON object on the last line of standard output");
  command->callback([options, &action] { action.run = [options] { return run_evaluate(*options); }; });
}

}  // namespace switchyard::apps
