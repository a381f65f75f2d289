#include "train/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/median.hpp"

namespace switchyard::train {

namespace {

/// Calls visit(name, value) for each measured number but the step's own.
template <class Visit>
void for_each_number(const StepRecord& r, Visit visit) {
  if (r.loss) visit("loss", *r.loss);
  visit("lr", r.learning_rate);
  visit("grad_norm", r.grad_norm);
  visit("tokens", r.tokens);
  visit("seconds", r.time.count);
  visit("tokens_per_second", r.tokens_per_second());
  if (r.matmul_share) visit("matmul_share", *r.matmul_share);
  visit("intra_bytes", r.intra_host_traffic.count);
  visit("inter_bytes", r.inter_host_traffic.count);
  visit("switch_seconds", r.switch_time.count);
  visit("switch_share", r.switch_share());
  visit("padding_share", r.padding_share);
  if (r.bubble_share) visit("bubble_share", *r.bubble_share);
  if (r.slowest_rank) {
    visit("slowest_rank", *r.slowest_rank);
    visit("slowest_rank_seconds", r.slowest_rank_time.count);
    visit("median_rank_seconds", r.median_rank_time.count);
  }
  if (r.hidden_share) visit("hidden_share", *r.hidden_share);
  if (r.checkpoint_time) visit("checkpoint_seconds", r.checkpoint_time->count);
  for (const PartRecord& source : r.sources) {
    if (source.loss) visit("loss/" + source.name, *source.loss);
    visit("tokens/" + source.name, source.tokens);
  }
}

/// Calls visit(name, bytes of each rank) for each peak of memory.
template <class Visit>
void for_each_peak(const StepRecord& r, Visit visit) {
  visit("peak_bytes", r.peak_memory);
  visit("predicted_peak_bytes", r.predicted_peak_memory);
  visit("peak_bound_bytes", r.peak_memory_bound);
}

// All parts of a validation, the whole first.
template <class Visit>
void for_each_part(const ValidationRecord& record, Visit visit) {
  visit(record.all);
  for (const PartRecord& part : record.lengths) visit(part);
  for (const PartRecord& part : record.sources) visit(part);
}

// The same as (key, number).
template <class Visit>
void for_each_number(const ValidationRecord& record, Visit visit) {
  for_each_part(record, [&](const PartRecord& part) {
    const std::string of = part.name.empty() ? "" : "/" + part.name;
    if (part.loss) visit("loss" + of, *part.loss);
    visit("tokens" + of, part.tokens);
  });
  visit("seconds", record.time.count);
}

}  // namespace

double StepRecord::tokens_per_second() const { return time.count > 0 ? static_cast<double>(tokens) / time.count : 0; }
double StepRecord::switch_share() const { return time.count > 0 ? switch_time / time : 0; }

void set_waiting(StepRecord& record, const std::vector<double>& waiting) {
  const double seconds = record.time.count;
  const double sum = std::accumulate(waiting.begin(), waiting.end(), 0.0);
  record.bubble_share = seconds > 0 ? sum / (static_cast<double>(waiting.size()) * seconds) : 0;
  if (waiting.size() < 2) return;
  const auto slowest = std::ranges::min_element(waiting);
  record.slowest_rank = static_cast<int>(slowest - waiting.begin());
  record.slowest_rank_time = Seconds{std::max(0.0, seconds - *slowest)};
  record.median_rank_time = Seconds{std::max(0.0, seconds - median(waiting))};
}

nlohmann::ordered_json to_json(const StepRecord& record) {
  nlohmann::ordered_json json{{"step", record.step}};
  for_each_number(record, [&](const std::string& name, auto value) { json[name] = value; });
  for_each_peak(record, [&](const std::string& name, const std::vector<Bytes>& per_rank) {
    nlohmann::ordered_json& array = json[name + "_per_rank"] = nlohmann::ordered_json::array();
    for (const Bytes bytes : per_rank) array.push_back(bytes.count);
  });
  if (!record.chosen_buckets.empty()) json["chosen_buckets"] = record.chosen_buckets;
  if (!record.emulated.empty()) json["emulated"] = record.emulated;
  json["skipped"] = record.skipped;
  return json;
}

std::vector<std::pair<std::string, double>> scalars(const StepRecord& record) {
  std::vector<std::pair<std::string, double>> scalars;
  const auto add = [&](const std::string& name, auto value) {
    scalars.emplace_back("train/" + name, static_cast<double>(value));
  };
  for_each_number(record, add);
  for_each_peak(record, [&](const std::string& name, const std::vector<Bytes>& per_rank) {
    if (!per_rank.empty()) add(name, std::ranges::max(per_rank).count);
  });
  if (!record.emulated.empty()) add("emulated", 1);
  add("skipped", record.skipped);
  return scalars;
}

nlohmann::ordered_json to_json(const ValidationRecord& record) {
  nlohmann::ordered_json json{{"step", record.step}};
  for_each_number(record, [&](const std::string& name, auto value) { json[name] = value; });
  return json;
}

std::vector<std::pair<std::string, double>> scalars(const ValidationRecord& record) {
  std::vector<std::pair<std::string, double>> scalars;
  for_each_number(record, [&](const std::string& name, auto value) {
    scalars.emplace_back("validation/" + name, static_cast<double>(value));
  });
  return scalars;
}

std::string to_string(const ValidationRecord& record) {
  std::string text = "validation loss";
  for_each_part(record, [&](const PartRecord& part) {
    text += part.name.empty() ? " " : fmt::format(", {} ", part.name);
    text += part.loss ? fmt::format("{:.4f}", *part.loss) : "-";
  });
  return text;
}

}  // namespace switchyard::train
