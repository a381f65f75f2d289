// A strategy's text: "2,4,2", "dp=2,tp=4,zero=0", or groups such as "2,2,1 + 1,1,4". Its settings are those of the
// table of job keys.
#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/errors.hpp"
#include "base/text.hpp"
#include "config/job_keys.hpp"
#include "config/names_elsewhere.hpp"
#include "config/strategy.hpp"

namespace switchyard::config {
namespace {

constexpr std::array<DegreeKey, 7> kDegrees{{{"dp", &Degrees::dp, StageAxis::data},
                                             {"tp", &Degrees::tp, StageAxis::outer},
                                             {"pp", &Degrees::pp, std::nullopt},
                                             {"ring", &Degrees::ring, StageAxis::ring},
                                             {"ulysses", &Degrees::ulysses, StageAxis::ulysses},
                                             {"depth", &Degrees::depth, StageAxis::depth},
                                             {"inner", &Degrees::inner, StageAxis::inner, &Degrees::tp}}};
constexpr size_t kNumbers = 3;  // "2,4,2" has the first ones

// The other keys in the order in which they are printed.
struct Setting {
  std::string_view key;
  bool of_group = false;  // every group has its own, as its degrees
};
constexpr std::array<Setting, 24> kSettings{{{"zero"},
                                             {"every"},
                                             {"schedule"},
                                             {"chunks"},
                                             {"activation_cap"},
                                             {"recompute"},
                                             {"micro_batch_tokens"},
                                             {"micro_batch_sequences"},
                                             {"sequence_parallel"},
                                             {"inside", true},
                                             {"head_layers", true},
                                             {"paired"},
                                             {"packing"},
                                             {"ring_degree"},
                                             {"exchange"},
                                             {"compression.gradients"},
                                             {"compression.error_feedback"},
                                             {"compression.pipeline"},
                                             {"compression.activations"},
                                             {"compression.ulysses"},
                                             {"compression.keys"},
                                             {"compression.gathers"},
                                             {"compression.switches"},
                                             {"compression.links"}}};

const Key<BucketDraft>& setting(std::string_view name) {
  const auto& keys = bucket_keys();
  const auto found = std::ranges::find(keys, "strategy." + std::string(name), &Key<BucketDraft>::name);
  check(found != keys.end(), "no setting of strategies is called {}", name);
  return *found;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> parts_between(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(between, at), text.size());
    parts.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return parts;
}

std::optional<i64> integer(std::string_view text) {
  i64 value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class TextReader {
 public:
  TextReader(std::string_view text, const StrategySettings& defaults) : text_(text) { draft_.settings = defaults; }

  /// settings: whether the first group has those of the strategy.
  StrategyText read(bool settings) {
    std::vector<Degrees> groups;
    for (const std::string_view group : parts_between(text_, '+')) {
      group_ = group;
      has_settings_ = settings && groups.empty();
      given_.clear();
      draft_.degrees = {};
      const std::vector<std::string_view> parts = parts_between(group, ',');
      if (group.find('=') == std::string_view::npos)
        read_numbers(parts);
      else
        for (const std::string_view part : parts) read_key(part);
      groups.push_back(draft_.degrees);
    }
    return {std::move(groups), draft_.settings};
  }

 private:
  [[noreturn]] void error(const std::string& what) const {
    if (text_.find('+') == std::string_view::npos) user_error("strategy \"{}\" {}", text_, what);
    user_error("strategy \"{}\": group \"{}\" {}", text_, group_, what);
  }

  void read_numbers(const std::vector<std::string_view>& parts) {
    bool good = parts.size() == kNumbers;
    for (size_t i = 0; i < kNumbers && good; ++i) {
      const std::optional<i64> number = integer(parts[i]);
      good = number && *number >= 1;
      if (good) draft_.degrees.*kDegrees[i].value = *number;
    }
    if (!good)
      error(
          "is not \"dp,tp,pp\". Write three numbers of at least 1, such as \"1,4,2\", or keys, such as "
          "\"dp=2,tp=4\".");
  }

  void read_key(std::string_view part) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      error(fmt::format("has \"{}\" between its keys. Write every part as key=value.", part));
    const std::string key(trimmed(part.substr(0, equals))), value(trimmed(part.substr(equals + 1)));
    if (!given_.insert(key).second) error(fmt::format("gives {} twice. Keep one.", key));
    if (const auto degree = std::ranges::find(kDegrees, key, &DegreeKey::key); degree != kDegrees.end()) {
      const std::optional<i64> number = integer(value);
      if (!number || *number < 1) error(fmt::format("has {} = \"{}\": a number of at least 1 is needed.", key, value));
      draft_.degrees.*degree->value = *number;
    } else if (const auto known = std::ranges::find(kSettings, key, &Setting::key); known != kSettings.end()) {
      if (!has_settings_ && !known->of_group)
        error(fmt::format("has {}, which holds for all groups. Give it in the first one.", key));
      read_setting(setting(key), key, value);
    } else {
      unknown(key);
    }
  }

  void read_setting(const Key<BucketDraft>& info, const std::string& key, const std::string& value) {
    std::optional<KeyValue> read;
    if (info.type == KeyType::boolean && (value == "true" || value == "false")) read = value == "true";
    if (info.type == KeyType::choice && std::ranges::count(info.choices, value) > 0) read = value;
    if (info.type == KeyType::integer)
      if (const std::optional<i64> number = integer(value)) read = *number;
    if (!read) error(fmt::format("has {} = \"{}\": {}.", key, value, wanted(info)));
    if (const std::string fault = out_of_range(info, *read); !fault.empty())
      error(fmt::format("has {} = {}, which {}.", key, value, fault));
    info.set(draft_, *read);
  }

  [[noreturn]] void unknown(const std::string& key) const {
    std::vector<std::string> names;
    for (const DegreeKey& degree : kDegrees) names.emplace_back(degree.key);
    for (const Setting& setting : kSettings) names.emplace_back(setting.key);
    const std::string nearest = nearest_name(key, names);
    const std::string_view instead = instead_of(key);
    error(fmt::format("has an unknown key \"{}\". {}", key,
                      !instead.empty()  ? std::string(instead)
                      : nearest.empty() ? fmt::format("Known are {}.", fmt::join(names, ", "))
                                        : fmt::format("Did you mean \"{}\"?", nearest)));
  }

  std::string_view text_, group_;
  bool has_settings_ = true;
  BucketDraft draft_;
  std::set<std::string> given_;  // keys of the group
};

std::string text_of(const KeyValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<i64>(&value)) return fmt::format("{}", *number);
  return std::get<std::string>(value);
}

}  // namespace

std::span<const DegreeKey> degree_keys() { return kDegrees; }

StrategyText read_strategy_text(std::string_view text, const StrategySettings& defaults) {
  const std::vector<Degrees> groups = TextReader(text, {}).read(true).groups;
  return TextReader(text, shared_settings(defaults, groups)).read(true);
}

std::vector<Degrees> read_groups_text(std::string_view text) { return TextReader(text, {}).read(false).groups; }

std::string to_text(const Degrees& degrees, const StrategySettings& settings) {
  std::string keys, numbers;
  bool only_numbers = true;
  const auto add = [&](std::string_view key, const std::string& value) {
    keys += fmt::format("{}{}={}", keys.empty() ? "" : ",", key, value);
  };
  for (size_t i = 0; i < kDegrees.size(); ++i) {
    const i64 value = degrees.*kDegrees[i].value;
    if (i < kNumbers)
      numbers += fmt::format("{}{}", i == 0 ? "" : ",", value);
    else
      only_numbers = only_numbers && value == 1;
    if (value != 1) add(kDegrees[i].key, fmt::format("{}", value));
  }
  BucketDraft draft;
  const BucketDraft usual;
  draft.degrees = degrees;
  draft.settings = settings;
  for (const Setting& known : kSettings) {
    const Key<BucketDraft>& key = setting(known.key);
    if (key.get(draft) == key.get(usual)) continue;
    add(known.key, text_of(key.get(draft)));
    only_numbers = false;
  }
  return only_numbers ? numbers : keys;
}

std::string to_text(std::span<const Degrees> groups, const StrategySettings& settings) {
  std::string text;
  for (size_t g = 0; g < groups.size(); ++g) text += g == 0 ? to_text(groups[g], settings) : " + " + to_text(groups[g]);
  return text;
}

}  // namespace switchyard::config
