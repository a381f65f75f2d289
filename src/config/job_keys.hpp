// The table of keys of a job file. One row per key: its name, type, range, unit and meaning, and the field it fills.
// Reading, overrides, messages, help, the reference page and the resolved job all come from these rows.
#pragma once

#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/job.hpp"

namespace switchyard::config {

/// [[bucket]] as written: strategy is one of the text, the table (degrees) and the file.
struct BucketDraft {
  i64 max_length = 0;
  std::string text, file, name, schedule_file, beside;
  Degrees degrees;
  StrategySettings settings;
};

/// A job file as written, before anything is derived from it.
struct JobDraft {
  Job job;
  std::string model_preset, parallel_preset;
  StrategySettings settings;  // [parallel]: of all strategies, unless a bucket says otherwise
  std::vector<BucketDraft> buckets;
  std::string origin;
  std::map<std::string, std::string>
      given;                     // key -> where, for messages: "job.toml:12"; buckets as "bucket.0.max_length"
  std::set<std::string> faulty;  // keys with an invalid value; sections that are not tables, as "run."

  bool has(const std::string& key) const { return given.contains(key); }
  /// Whether the key was given neither a valid nor an invalid value.
  bool misses(const std::string& key) const { return !given.contains(key) && !faulty.contains(key); }
  /// Where a key was given; if it wasn't: the job file.
  const std::string& where(const std::string& key) const { return has(key) ? given.at(key) : origin; }
};

enum class KeyType { boolean, integer, integers, number, text, choice, bytes, duration };
/// By type: bool, i64, list of i64, double, string, string, i64 bytes, double seconds.
using KeyValue = std::variant<bool, i64, double, std::string, std::vector<i64>>;

struct KeyRange {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  bool above = false, below = false;  // the bound itself is excluded
};

struct KeyInfo {
  std::string name;  // dotted
  KeyType type = KeyType::text;
  std::string unit, meaning;
  KeyRange range;
  std::vector<std::string> choices;
  std::string fallback;        // the default in words, where it isn't a plain value
  bool rank_only = false;      // ranks may differ in it
  bool same_function = false;  // for [model]: the same weights compute the same with any value
  bool beside_path = false;    // for [model]: may be given with model.path, and changes what its config.json says
  bool secret = false;         // never written nor shown
};

template <class Owner>
struct Key : KeyInfo {
  KeyValue (*get)(const Owner&) = nullptr;
  void (*set)(Owner&, const KeyValue&) = nullptr;
};

/// All keys outside [[bucket]], in the order of a job file.
const std::vector<Key<JobDraft>>& job_keys();
/// The one of that name, such as "batch.context"; InternalError if there is none.
const Key<JobDraft>& job_key(std::string_view name);
/// Keys of a [[bucket]], names relative to it.
const std::vector<Key<BucketDraft>>& bucket_keys();
/// Keys of a [[data.source]], names relative to it.
const std::vector<Key<DataSource>>& source_keys();

/// The function that a model computes with given weights: `model.key = value` for each key of [model] that matters to
/// its family.
std::vector<std::string> function_of(const ModelConfig& model);

/// "an integer is needed", "one of ... is needed": what a message asks for.
std::string wanted(const KeyInfo& key);
/// "at least 0 and below 1"; "" if there is no bound to report.
std::string range_words(const KeyRange& range);
/// "" if the value lies in the key's range; otherwise the end of a message, such as "must be at least 1".
std::string out_of_range(const KeyInfo& key, const KeyValue& value);
/// The value as it stands in a TOML file.
std::string toml_literal(const KeyInfo& key, const KeyValue& value);

/// The keys that say of which sizes a model is; they exclude model.preset and model.path.
inline constexpr std::array<std::string_view, 7> kSizeKeys{"model.architecture", "model.hidden_size", "model.layers",
                                                           "model.heads",        "model.kv_heads",    "model.head_dim",
                                                           "model.ffn_size"};

}  // namespace switchyard::config
