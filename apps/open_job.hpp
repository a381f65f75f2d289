// A job file with nothing left open.
#pragma once

#include <string>
#include <vector>

#include "config/job.hpp"

namespace switchyard::apps {

/// The job of `path` with the overrides `sets`; sizes from model.path, the vocabulary from the data folder; validated.
/// errors  UserError: the file, the model's folder or the data can't be read, or something in them is wrong
config::Job open_job(const std::string& path, const std::vector<std::string>& sets);

}  // namespace switchyard::apps
