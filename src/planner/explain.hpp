// Why a plan was chosen, in words.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "planner/plan.hpp"

namespace switchyard::planner {

/// A plan and, where a simulator has looked at it, what it says: seconds of a step, and bytes of the rank with the
/// highest peak.
struct Judged {
  Choice choice;
  std::optional<double> seconds{};
  std::optional<i64> peak{};
  double step() const { return seconds.value_or(choice.seconds); }
};

/// What most of the step is, such as "computing: 85% of the step".
std::string limit_of(const Account& account);
/// Memory of the rank with the highest peak against the budget in force: "201 MiB of the budget of 216 MiB (93%)".
std::string memory_of(i64 peak, i64 budget);

/// limit: makes a new `stop` for each search. simulate: seconds of the quickest of some plans of another planner, as a
/// simulator has them; without it they are the model's.
struct Questions {
  std::function<std::function<bool()>()> limit;
  std::function<double(const Planner& planner, const std::vector<Choice>& choices, size_t& quickest)> simulate{};
};

/// A table of the plans, the quickest first: what each step consists of, and how much each takes more than the first;
/// what limits that one; and what would be chosen with more memory, quicker devices, faster links, more hosts or longer
/// documents, and what that would gain: it is planned anew, and compared with the plan that there is.
std::string explain(const Planner& planner, std::span<const Judged> plans, const Counts& counts, const Questions& ask);

}  // namespace switchyard::planner
