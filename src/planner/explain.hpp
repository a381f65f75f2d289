// Why a plan was chosen, in words.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "planner/plan.hpp"

namespace switchyard::planner {

/// A plan and, where it was simulated, the result: seconds of a step, and peak bytes of the rank with the highest peak.
/// number: by which tables name it; none: its place among those that are explained, from 1.
struct Judged {
  Choice choice;
  std::optional<double> seconds{};
  std::optional<i64> peak{};
  std::optional<size_t> number{};
  double step() const { return seconds.value_or(choice.seconds); }
};

/// What takes most of the step, such as "computing: 85% of the step".
std::string limit_of(const Account& account);
/// Memory of the rank with the highest peak against the budget in force: "201 MiB of the budget of 216 MiB (93%)".
std::string memory_of(i64 peak, i64 budget);

/// limit: makes a new SearchSettings::spent for each search. simulate: simulated seconds of the fastest of some plans
/// of another planner; without it the model's times are used.
struct Questions {
  std::function<std::function<double()>()> limit;
  std::function<double(const Planner& planner, const std::vector<Choice>& choices, size_t& quickest)> simulate{};
};

/// A table of the plans, the fastest first: what each step consists of, and how much longer each takes than the first;
/// what limits the first one; and which plan would be chosen with more memory, faster devices, faster links, more hosts
/// or longer documents, and the gain: each case is planned again and compared with the present plan.
std::string explain(const Planner& planner, std::span<const Judged> plans, const Counts& counts, const Questions& ask);

}  // namespace switchyard::planner
