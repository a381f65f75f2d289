// Commands as functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "progress.hpp"

namespace switchyard::apps {

/// What a command (plan, simulate or switch-plan) prints with --json.
/// words    its options, as on the command line
/// errors   UserError: with the command's message
/// effects  none but files that options name; any number of threads at once
nlohmann::json figures(const std::string& command, const std::vector<std::string>& words, const Progress& progress);

}  // namespace switchyard::apps
