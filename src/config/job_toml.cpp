// The resolved job as TOML.
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <span>
#include <sstream>

#include "base/errors.hpp"
#include "config/job_keys.hpp"

namespace switchyard::config {
namespace {

/// A string in double quotes on one line.
std::string quoted(const std::string& text) {
  std::ostringstream stream;
  stream << toml::toml_formatter(toml::value<std::string>(text), toml::format_flags::allow_unicode_strings);
  return stream.str();
}

/// Text as it is, between triple quotes; quoted on one line if it has characters that triple quotes do not allow.
std::string readable(const std::string& text) {
  constexpr char kDelete = 0x7f;
  if (text.find("'''") != std::string::npos || text.find(kDelete) != std::string::npos) return quoted(text);
  return "'''\n" + text + "'''";
}

/// The largest unit that divides the count, so that nothing is lost.
std::string exact_bytes(i64 count) {
  constexpr std::array<std::pair<i64, const char*>, 4> kUnits{
      {{i64{1} << 40, "TiB"}, {i64{1} << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}};
  for (const auto& [size, name] : kUnits) {
    if (count % size == 0) return fmt::format("{} {}", count / size, name);
  }
  return fmt::format("{} B", count);
}

/// Shortest digits that give the same number back, as TOML's float.
std::string exact_number(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

/// Whether a key was never set and has no plain default, so that there is no value to write.
bool is_open(const KeyInfo& key, const KeyValue& value) {
  const std::string* text = std::get_if<std::string>(&value);
  const auto* list = std::get_if<std::vector<i64>>(&value);
  return (text != nullptr && text->empty()) || (list != nullptr && list->empty()) || !out_of_range(key, value).empty();
}

std::string table_of(const Bucket& bucket) {
  BucketDraft draft;
  draft.name = bucket.strategy.name;
  draft.degrees = bucket.degrees.front();
  draft.beside = to_text(std::span(bucket.degrees).subspan(1));
  draft.settings = bucket.strategy;
  std::string text;
  constexpr std::string_view kPrefix = "strategy.";
  for (const Key<BucketDraft>& key : bucket_keys()) {
    const KeyValue value = key.get(draft);
    if (!key.name.starts_with(kPrefix) || is_open(key, value)) continue;
    text +=
        fmt::format("{}{} = {}", text.empty() ? "" : ", ", key.name.substr(kPrefix.size()), toml_literal(key, value));
  }
  return "{ " + text + " }";
}

/// [parallel] and [compression] are part of the buckets by now, and a model from a folder has its other settings in
/// that folder.
bool is_written(const KeyInfo& key, const Job& job) {
  if (key.secret) return false;
  if (key.name.starts_with("parallel.") || key.name.starts_with("compression.") || key.name == "model.preset")
    return false;
  if (job.model.path.empty() || !key.name.starts_with("model.") || key.name == "model.path") return true;
  return std::ranges::find(job.model.changed, key.name) != job.model.changed.end();
}

}  // namespace

std::string toml_literal(const KeyInfo& key, const KeyValue& value) {
  switch (key.type) {
    case KeyType::boolean:
      return std::get<bool>(value) ? "true" : "false";
    case KeyType::integer:
      return fmt::format("{}", std::get<i64>(value));
    case KeyType::integers:
      return fmt::format("[{}]", fmt::join(std::get<std::vector<i64>>(value), ", "));
    case KeyType::number:
      return exact_number(std::get<double>(value));
    case KeyType::text:
    case KeyType::choice:
      return quoted(std::get<std::string>(value));
    case KeyType::bytes:
      return std::get<i64>(value) == 0 ? "\"none\"" : quoted(exact_bytes(std::get<i64>(value)));
    case KeyType::duration:
      return quoted(fmt::format("{} s", std::get<double>(value)));
  }
  throw InternalError("toml_literal: unknown type of key");
}

std::string to_toml(const Job& job) {
  JobDraft draft;
  draft.job = job;
  std::string text = "# The job as resolved: every key, including those left at their defaults.\n", section;
  for (const Key<JobDraft>& key : job_keys()) {
    const KeyValue value = key.get(draft);
    if (!is_written(key, job) || is_open(key, value)) continue;
    const size_t dot = key.name.find('.');
    if (dot != std::string::npos && key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += fmt::format("\n[{}]\n", section);
    }
    text += fmt::format("{} = {}\n", dot == std::string::npos ? key.name : key.name.substr(dot + 1),
                        toml_literal(key, value));
  }
  for (const auto& [list, sources] : source_lists(draft.job)) {
    for (const DataSource& source : *sources) {
      text += fmt::format("\n[[{}]]\n", list);
      for (const Key<DataSource>& key : source_keys())
        text += fmt::format("{} = {}\n", key.name, toml_literal(key, key.get(source)));
    }
  }
  for (const Bucket& bucket : job.buckets) {
    text += fmt::format("\n[[bucket]]\nmax_length = {}\nstrategy = {}\n", bucket.max_length,
                        bucket.degrees.empty() ? readable(to_json(bucket.strategy)) : table_of(bucket));
  }
  return text;
}

}  // namespace switchyard::config
