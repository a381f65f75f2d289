// From TOML text and overrides to a draft of the job, by the table of keys.
#pragma once

#include <string>
#include <vector>

#include "config/faults.hpp"
#include "config/job_keys.hpp"

namespace switchyard::config {

/// Reads every key into the draft; unknown keys (with the nearest known one), wrong types and values out of range go to
/// `faults` with file and line. UserError at once for text that is no TOML.
JobDraft read_draft(const std::string& text, const std::string& origin, const std::vector<std::string>& sets, Faults& faults);

}  // namespace switchyard::config
