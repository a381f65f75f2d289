// A job file with nothing left open.
#pragma once

#include <string>
#include <vector>

#include "config/job_reader.hpp"

namespace switchyard::apps {

/// The job of `path` with overrides; sizes from model.path, the vocabulary from the data folder; validated.
/// errors  UserError: the file, the model's folder or the data can't be read, or something in them is wrong
config::Job open_job(const std::string& path, const std::vector<config::Override>& overrides = {});
/// The same of a draft. errors: those of reading, thrown together with all others.
config::Job open_job(const config::JobDraft& draft, config::Errors& errors);

}  // namespace switchyard::apps
