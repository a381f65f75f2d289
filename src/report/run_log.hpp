// The log of a run, read back.
#pragma once

#include <map>
#include <set>
#include <string>

#include "report/page.hpp"

namespace switchyard::report {

/// The contents of log.jsonl (docs/file-formats.md): a column for each number, and the highest peaks per rank. A last
/// line that a killed run left half-written is skipped.
/// errors  UserError naming `origin` and the line if another line is not a step of a run, or if there are no steps
struct RunLog {
  Steps steps;
  std::vector<i64> measured_peak, predicted_peak;  // bytes per rank, highest over all steps
  std::set<std::string> emulated;                  // clusters whose times steps have; "": the machine's own
  std::map<i64, std::vector<int>> chosen_buckets;  // by number of the step, where steps choose their buckets
};
RunLog read_log(const std::string& text, const std::string& origin);

/// Adds the contents of validation.jsonl: columns validation/loss, validation/loss/PART, with values in the steps that
/// were followed by a validation.
/// errors  UserError as read_log
void add_validations(RunLog& log, const std::string& text, const std::string& origin);

/// The present values of a column, in order; empty if there is no such column.
std::vector<double> values_of(const Steps& steps, const std::string& name);
/// The value of a column in a step, if there is one.
std::optional<double> value_at(const Steps& steps, const std::string& name, i64 step);

}  // namespace switchyard::report
