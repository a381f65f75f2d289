// Where a command's job comes from: a file, the command line, or both. One grammar for plan, simulate and show.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/job_reader.hpp"

namespace switchyard::apps {

struct JobOptions {
  std::string file, model, lengths, strategy;
  std::optional<i64> context, ranks, sequences;
  std::vector<std::string> sets;

  /// What is shown for the job: the file's name without its ending, or the model.
  std::string name() const;
};

/// Which of the options a command takes. planned: strategies are the planner's, and the command has its own option for
/// the number of documents. switched: the command has its own options for strategies, and needs no context.
enum class JobKind { given, planned, switched };
void add_job_options(CLI::App& command, JobOptions& options, JobKind kind);

/// The required option --cluster of commands that need rates; config::load_hardware takes it.
void add_cluster_option(CLI::App& command, std::string& cluster);

/// The job as written: the file with what the options change in it. Without a file the options must name the model, the
/// context, and, where strategies are given, those; steps then have 512 documents as long as the context, in bf16,
/// unless options say otherwise, and nothing is read from data. cluster: the command's option, for messages.
/// errors  as config::load_draft; UserError if there is neither a file nor what is needed without one
config::JobDraft draft_of(const JobOptions& options, JobKind kind, config::Errors& errors,
                          const std::string& cluster = "");

/// The options, with the model's context where neither they nor a file say one.
JobOptions with_context(JobOptions options);

/// The model that --model names: a preset, or a folder with config.json.
config::ModelConfig model_of(const std::string& model);

}  // namespace switchyard::apps
