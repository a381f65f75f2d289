#include "job_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/errors.hpp"
#include "command_line.hpp"
#include "config/hardware.hpp"
#include "files/hf_config.hpp"

namespace switchyard::apps {
namespace {

constexpr const char* kCommandLine = "the command line";
constexpr int kSequences = 512;  // documents a step, as in the published cases

bool sets_key(const JobOptions& options, const std::string& key) {
  return std::ranges::any_of(options.sets, [&](const std::string& set) { return set.starts_with(key + "="); });
}

// What a job without a file has where no option says otherwise.
std::string defaults(const JobOptions& options) {
  std::string text = "[batch]\nlengths = \"full\"\n";
  if (!sets_key(options, "batch.tokens")) text += fmt::format("sequences = {}\n", kSequences);
  return text + "[run]\nprecision = \"bf16\"\n";
}

// The word as a shell takes it.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-=.,:/+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// Whether it says how many hosts there are, with rates or without.
bool has_hosts(const std::string& cluster) {
  try {
    return !cluster.empty() && config::load_cluster(cluster).ranks() > 0;
  } catch (const UserError&) {
    return false;
  }
}

// The command that plans for the same options, with NAME and N for what they lack.
std::string plan_command(const JobOptions& options, const std::string& cluster) {
  std::string text = "switchyard plan";
  const auto add = [&](const char* option, const auto& value) {
    text += fmt::format(" {} {}", option, quoted(fmt::format("{}", value)));
  };
  add("--model", options.model);
  if (options.context) add("--context", *options.context);
  if (!options.lengths.empty()) add("--lengths", options.lengths);
  if (options.sequences) add("--sequences", *options.sequences);
  if (options.ranks) add("--ranks", *options.ranks);
  for (const std::string& set : options.sets) add("--set", set);
  add("--cluster", config::is_cluster_file(cluster) ? cluster : has_hosts(cluster) ? "NAME:" + cluster : "NAME");
  if (!options.ranks && !sets_key(options, "run.ranks") && !has_hosts(cluster)) add("--ranks", "N");
  return text;
}

void check_complete(const JobOptions& options, JobKind kind, const std::string& cluster) {
  std::vector<std::string> missing;
  if (options.model.empty()) missing.push_back("--model");
  if (!options.context && kind != JobKind::switched) missing.push_back("--context");
  if (kind == JobKind::given && options.strategy.empty()) missing.push_back("--strategy");
  if (missing.empty()) return;
  const bool strategy_alone = missing == std::vector<std::string>{"--strategy"};
  user_error("there is no job file, and {} {} missing. Name a file, such as demo/job.toml, or give {}.{}",
             fmt::join(missing, " and "), missing.size() == 1 ? "is" : "are",
             kind == JobKind::given     ? "--model, --context and --strategy"
             : kind == JobKind::planned ? "--model and --context"
                                        : "--model",
             strategy_alone ? fmt::format(" To find one: {}", plan_command(options, cluster)) : "");
}

bool is_folder(const std::string& model) {
  return model.find('/') != std::string::npos || std::filesystem::exists(model);
}

// UserError unless it is a folder or a preset.
void check_model(const std::string& model) {
  if (is_folder(model)) return;
  try {
    config::model_preset(model);
  } catch (const UserError&) {
    user_error(
        "--model {0}: there is no folder {0}, and no preset is called so. Give a folder with config.json, or one "
        "of {1}.",
        model, config::model_preset_names());
  }
}

// Options override the file's keys, and so does --set.
std::vector<config::Override> overrides_of(const JobOptions& options) {
  std::vector<config::Override> overrides;
  const auto add = [&](const char* option, const char* key, const auto& value) {
    overrides.push_back({fmt::format("{} {}", option, value), key, value});
  };
  if (!options.model.empty()) add("--model", is_folder(options.model) ? "model.path" : "model.preset", options.model);
  if (options.context) add("--context", "batch.context", *options.context);
  if (!options.lengths.empty()) add("--lengths", "batch.lengths", options.lengths);
  if (options.sequences) add("--sequences", "batch.sequences", *options.sequences);
  if (options.ranks) add("--ranks", "run.ranks", *options.ranks);
  std::ranges::copy(config::overrides_of(options.sets), std::back_inserter(overrides));
  return overrides;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last + 1 - first);
}

// "to 4096: 1,2,2; to 1024: dp=4", or one strategy for all documents.
std::vector<config::BucketDraft> buckets_of(const std::string& strategies, i64 context) {
  std::vector<config::BucketDraft> buckets;
  std::istringstream list(strategies);
  for (std::string item; std::getline(list, item, ';');) {
    config::BucketDraft bucket;
    bucket.max_length = context;
    item = trimmed(item);
    if (constexpr std::string_view kTo = "to "; item.starts_with(kTo)) {
      const size_t colon = item.find(':');
      const char *first = item.data() + kTo.size(), *last = item.data() + std::min(colon, item.size());
      if (colon == std::string::npos || std::from_chars(first, last, bucket.max_length).ptr != last ||
          bucket.max_length < 1)
        user_error("--strategy: \"{}\" is not understood. A bucket is \"to LENGTH: STRATEGY\", such as to 4096: 1,2,2.",
                   item);
      item = trimmed(item.substr(colon + 1));
    }
    bucket.text = item;
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

void set_strategy(config::JobDraft& draft, const std::string& strategies) {
  draft.buckets = buckets_of(strategies, draft.job.batch.context);
  std::erase_if(draft.given, [](const auto& given) { return given.first.starts_with("bucket."); });
  for (size_t i = 0; i < draft.buckets.size(); ++i)
    for (const char* key : {"", ".max_length", ".strategy"})
      draft.given[fmt::format("bucket.{}{}", i, key)] = "--strategy " + strategies;
}

}  // namespace

std::string JobOptions::name() const { return std::filesystem::path(file.empty() ? model : file).stem().string(); }

config::ModelConfig model_of(const std::string& model) {
  check_model(model);
  return is_folder(model) ? files::read_hf_config(model) : config::model_preset(model);
}

void add_job_options(CLI::App& command, JobOptions& options, JobKind kind) {
  command.add_option("job", options.file, "Job file; options below change it, or stand for one")->type_name("JOB.toml");
  command.add_option("--model", options.model,
                     "Preset (" + config::model_preset_names() + "), or a folder with config.json");
  command.add_option("--context", options.context, "Longest document in tokens")->check(at_least(1));
  command
      .add_option("--lengths", options.lengths,
                  "Histogram of document lengths, written by data stats --json (default without a job file: all "
                  "documents are as long as the context)")
      ->type_name("FILE");
  command.add_option("--ranks", options.ranks, "Number of ranks")->check(at_least(1));
  if (kind == JobKind::given) {
    command.add_option("--strategy", options.strategy,
                       "A strategy for all documents, or one for each range of lengths: \"to 4096: 1,2,2; to 1024: "
                       "dp=4,recompute=full\"");
    command.add_option("--sequences", options.sequences, "Documents a step (default without a job file: 512)")
        ->check(at_least(1));
  }
  command.add_option("--set", options.sets, "Overrides a key of the job")->type_name("KEY=VALUE");
}

void add_cluster_option(CLI::App& command, std::string& cluster) {
  command
      .add_option("--cluster", cluster,
                  "Name of a shipped cluster, a cluster file, or a profile; NAME:4x8 or NAME:HOSTFILE puts its devices "
                  "on these hosts")
      ->type_name("NAME|FILE REQUIRED");  // require_cluster says which there are
}

JobOptions with_context(JobOptions options) {
  if (options.file.empty() && !options.context && !options.model.empty()) {
    const config::ModelConfig model = model_of(options.model);
    const i64 longest =
        model.sliding_window > 0 ? std::min(model.max_positions, model.sliding_window) : model.max_positions;
    options.context = std::max<i64>(longest, 1);
  }
  return options;
}

config::JobDraft draft_of(const JobOptions& options, JobKind kind, config::Errors& errors, const std::string& cluster) {
  if (!options.model.empty()) check_model(options.model);
  const std::vector<config::Override> overrides = overrides_of(options);
  if (options.file.empty()) check_complete(options, kind, cluster);
  config::JobDraft draft = options.file.empty() ? config::read_draft(defaults(options), kCommandLine, overrides, errors)
                                                : config::load_draft(options.file, overrides, errors);
  if (!options.strategy.empty()) set_strategy(draft, options.strategy);
  return draft;
}

}  // namespace switchyard::apps
