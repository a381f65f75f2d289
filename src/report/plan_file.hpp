// plan.json of a run folder, and the file that the plan command writes beside a planned job: the plans that were
// compared before training.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/job.hpp"
#include "report/page.hpp"

namespace switchyard::report {

/// planned: the job with the chosen plan.
std::string plan_text(const std::vector<Candidate>& candidates, const config::Job& planned);
/// errors  UserError naming `origin` if the text is not such a list
std::vector<Candidate> read_plan(const std::string& text, const std::string& origin);
/// Whether the plans were compared for the job's model, batches and buckets.
/// errors  as of read_plan
bool is_plan_of(const std::string& text, const config::Job& job, const std::string& origin);
/// planned.plan.json for planned.toml.
std::filesystem::path plan_path_of(std::filesystem::path job);

}  // namespace switchyard::report
