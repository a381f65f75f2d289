// Why a plan was chosen, in words.
#pragma once

#include <functional>
#include <string>

#include "planner/plan.hpp"

namespace switchyard::planner {

/// What most of the step is, such as "computing: 85% of the step".
std::string limit_of(const Account& account);

/// A table of the plans found: what each step consists of, and how much each takes more than the best; what limits the best one; and what
/// would be chosen with more memory, faster links or longer documents, which is searched anew, each time with a new `limit()` as its stop.
std::string explain(const Planner& planner, const Found& found, const std::function<std::function<bool()>()>& limit);

}  // namespace switchyard::planner
