#include "report/run_log.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/job.hpp"
#include "report/kept_file.hpp"

namespace switchyard::report {
namespace {

using nlohmann::json;

constexpr const char* kColumns[] = {"loss",
                                    "lr",
                                    "grad_norm",
                                    "tokens",
                                    "seconds",
                                    "tokens_per_second",
                                    "matmul_share",
                                    "intra_bytes",
                                    "inter_bytes",
                                    "switch_seconds",
                                    "switch_share",
                                    "padding_share",
                                    "hidden_share",
                                    "bubble_share",
                                    "slowest_rank",
                                    "slowest_rank_seconds",
                                    "median_rank_seconds"};

// Figures of data with several sources: loss/NAME, tokens/NAME.
bool is_of_source(const std::string& key) { return key.starts_with("loss/") || key.starts_with("tokens/"); }

void raise_to(std::vector<i64>& highest, const config::Node& line, const char* key) {
  if (!line.has(key)) return;
  const std::vector<config::Node> values = line[key].items();
  highest.resize(std::max(highest.size(), values.size()));
  for (size_t i = 0; i < values.size(); ++i) highest[i] = std::max(highest[i], values[i].integer(0, kMostBytes));
}

double value_of(const config::Node& node, std::string_view column) {
  if (column.ends_with("_bytes")) return node.number(0, static_cast<double>(kMostBytes));
  if (column.ends_with("seconds")) return node.number(0, kMostSeconds);
  return node.number();
}

void add_line(RunLog& log, const config::Node& line) {
  const i64 before = log.steps.step.empty() ? 0 : log.steps.step.back();
  log.steps.step.push_back(line["step"].integer(before + 1, std::numeric_limits<i64>::max() - 1));
  for (const std::string& key : line.keys())
    if (is_of_source(key) && std::ranges::find(log.steps.series, key, &Series::name) == log.steps.series.end())
      log.steps.series.push_back({key, std::vector<std::optional<double>>(log.steps.step.size() - 1)});
  for (Series& series : log.steps.series) {
    const bool there = line.has(series.name) && !line[series.name].is_null();
    series.values.push_back(there ? std::optional(value_of(line[series.name], series.name)) : std::nullopt);
  }
  if (line.has("chosen_buckets"))
    for (const config::Node& bucket : line["chosen_buckets"].items())
      log.chosen_buckets[log.steps.step.back()].push_back(
          static_cast<int>(bucket.integer(0, config::kMostChosenFrom - 1)));
  log.emulated.insert(line.has("emulated") ? line["emulated"].text() : "");
  raise_to(log.measured_peak, line, "peak_bytes_per_rank");
  raise_to(log.predicted_peak, line, "predicted_peak_bytes_per_rank");
}

// Nothing for a step that the log lacks.
void add_validation(RunLog& log, const config::Node& line) {
  const i64 step = line["step"].integer(1, std::numeric_limits<i64>::max() - 1);
  const auto place = std::ranges::lower_bound(log.steps.step, step);
  if (place == log.steps.step.end() || *place != step) return;
  for (const std::string& key : line.keys()) {
    if (!key.starts_with("loss") || line[key].is_null()) continue;
    const std::string name = "validation/" + key;
    auto series = std::ranges::find(log.steps.series, name, &Series::name);
    if (series == log.steps.series.end())
      series = log.steps.series.insert(series, {name, std::vector<std::optional<double>>(log.steps.step.size())});
    series->values[static_cast<size_t>(place - log.steps.step.begin())] = line[key].number();
  }
}

// add: called with each line. A last line that a killed run left half-written is skipped.
template <class Add>
void for_each_line(const std::string& text, const std::string& origin, const char* what, Add add) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (lines.eof() && !json::accept(line)) break;  // no newline: half-written
    read_kept(line, fmt::format("{} line {}", origin, number), what, "Remove the line.", add);
  }
}

}  // namespace

RunLog read_log(const std::string& text, const std::string& origin) {
  RunLog log;
  for (const char* column : kColumns) log.steps.series.push_back({column, {}});
  for_each_line(text, origin, "step of a run", [&](const config::Node& line) { add_line(log, line); });
  if (log.steps.step.empty())
    user_error("{} has no steps yet. Run `switchyard report` again when the run has logged one.", origin);
  std::erase_if(log.steps.series, [](const Series& series) {
    return std::ranges::none_of(series.values, [](const auto& v) { return v.has_value(); });
  });
  return log;
}

void add_validations(RunLog& log, const std::string& text, const std::string& origin) {
  for_each_line(text, origin, "validation of a run", [&](const config::Node& line) { add_validation(log, line); });
}

std::vector<double> values_of(const Steps& steps, const std::string& name) {
  std::vector<double> values;
  for (const Series& series : steps.series)
    if (series.name == name)
      for (const auto& value : series.values)
        if (value) values.push_back(*value);
  return values;
}

std::optional<double> value_at(const Steps& steps, const std::string& name, i64 step) {
  const auto place = std::ranges::lower_bound(steps.step, step);
  const auto series = std::ranges::find(steps.series, name, &Series::name);
  if (place == steps.step.end() || *place != step || series == steps.series.end()) return std::nullopt;
  return series->values[static_cast<size_t>(place - steps.step.begin())];
}

}  // namespace switchyard::report
