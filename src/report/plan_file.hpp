// plan.json of a run folder: the plans that were compared before training.
#pragma once

#include <string>
#include <vector>

#include "report/page.hpp"

namespace switchyard::report {

std::string plan_text(const std::vector<Candidate>& candidates);
/// errors  UserError naming `origin` if the text is not such a list
std::vector<Candidate> read_plan(const std::string& text, const std::string& origin);

}  // namespace switchyard::report
