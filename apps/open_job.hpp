// Opens job files with all their settings resolved.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/job_reader.hpp"

namespace switchyard::apps {

/// The validated job at `path` with overrides; sizes come from model.path, the vocabulary from the data folder.
/// errors  UserError: the file, the model's folder or the data can't be read, or something in them is wrong
config::Job open_job(const std::string& path, const std::vector<config::Override>& overrides = {});
/// The job of a run. Its model is as it was when the run began, whatever is left of model.path.
config::Job open_run(const std::filesystem::path& folder);
/// The same for a draft. errors: errors found while reading it, which are thrown together with all others. model: the
/// file that stands for the config.json of model.path; empty: none does.
config::Job open_job(const config::JobDraft& draft, config::Errors& errors, const std::filesystem::path& model = {});

}  // namespace switchyard::apps
