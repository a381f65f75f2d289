#include "report/run_log.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/errors.hpp"

namespace switchyard::report {
namespace {

using nlohmann::json;

constexpr const char* kColumns[] = {"loss",         "lr",          "grad_norm",      "tokens",       "seconds",       "tokens_per_second", "matmul_share",
                                    "intra_bytes",  "inter_bytes", "switch_seconds", "switch_share", "padding_share", "bubble_share"};

void raise_to(std::vector<i64>& highest, const json& line, const char* key) {
  if (!line.contains(key)) return;
  const auto values = line.at(key).get<std::vector<i64>>();
  highest.resize(std::max(highest.size(), values.size()));
  for (size_t i = 0; i < values.size(); ++i) highest[i] = std::max(highest[i], values[i]);
}

void add_line(RunLog& log, const json& line) {
  log.steps.step.push_back(line.at("step").get<i64>());
  for (size_t c = 0; c < std::size(kColumns); ++c) {
    const auto value = line.find(kColumns[c]);
    const bool there = value != line.end() && !value->is_null();
    log.steps.series[c].values.push_back(there ? std::optional(value->get<double>()) : std::nullopt);
  }
  raise_to(log.measured_peak, line, "peak_bytes_per_rank");
  raise_to(log.predicted_peak, line, "predicted_peak_bytes_per_rank");
}

}  // namespace

RunLog read_log(const std::string& text, const std::string& origin) {
  RunLog log;
  for (const char* column : kColumns) log.steps.series.push_back({column, {}});
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const json object = json::parse(line, nullptr, false);
    if (object.is_discarded() && lines.eof()) break;  // no newline: cut off
    try {
      if (!object.is_object()) user_error("{} line {} is no JSON object. Remove the line.", origin, number);
      add_line(log, object);
    } catch (const json::exception& error) {
      user_error("{} line {} is no step of a run ({}). Remove the line.", origin, number, error.what());
    }
  }
  if (log.steps.step.empty()) user_error("{} has no steps yet. Report again when the run has logged one.", origin);
  std::erase_if(log.steps.series, [](const Series& series) { return std::ranges::none_of(series.values, [](const auto& v) { return v.has_value(); }); });
  return log;
}

std::vector<double> values_of(const Steps& steps, const std::string& name) {
  std::vector<double> values;
  for (const Series& series : steps.series)
    if (series.name == name)
      for (const auto& value : series.values)
        if (value) values.push_back(*value);
  return values;
}

}  // namespace switchyard::report
