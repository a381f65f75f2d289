// The log of a run, read back.
#pragma once

#include <string>

#include "report/page.hpp"

namespace switchyard::report {

/// What log.jsonl tells (docs/file-formats.md): a column for each number, and the last step's peaks per rank. A last
/// line that a killed run left half-written is passed over.
/// errors  UserError naming `origin` and the line if another line is no step of a run, or if there is none
struct RunLog {
  Steps steps;
  std::vector<i64> measured_peak, predicted_peak;  // bytes, highest of all steps, per rank
};
RunLog read_log(const std::string& text, const std::string& origin);

/// Values of a column that are there, in order; empty if there is no such column.
std::vector<double> values_of(const Steps& steps, const std::string& name);

}  // namespace switchyard::report
