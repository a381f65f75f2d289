// plan.json of a run folder: the plans that were compared before the run trained.
#pragma once

#include <string>
#include <vector>

#include "report/page.hpp"

namespace switchyard::report {

std::string plan_text(const std::vector<Candidate>& candidates);
/// errors  UserError naming `origin` if the text is no such list
std::vector<Candidate> read_plan(const std::string& text, const std::string& origin);

}  // namespace switchyard::report
