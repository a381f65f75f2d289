// Strategies as JSON files: docs/strategy-format.md.
#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/errors.hpp"
#include "base/text.hpp"
#include "config/strategy.hpp"

namespace switchyard::config {
namespace {

using Json = nlohmann::json;

constexpr i64 kMostInt = 1 << 30;

/// A string as a JSON string literal.
std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

/// A value as a message shows it: cut short, in one line.
std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  constexpr size_t kLongest = 40;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

/// A value of the document together with its path, so that each message says where.
class Node {
 public:
  Node(const Json& value, const std::string& origin, std::string path) : value_(value), origin_(origin), path_(std::move(path)) {}

  template <class... Args>
  [[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) const {
    user_error("{}: {} {}", origin_, path_.empty() ? "the document" : path_, fmt::format(format, std::forward<Args>(args)...));
  }

  /// Refuses keys other than these, and misses of the needed ones.
  void expect_keys(std::initializer_list<std::string> known, std::initializer_list<std::string> needed) const {
    if (!value_.is_object()) fault("is {}; an object is needed, with the keys {}.", shown(value_), fmt::join(known, ", "));
    const std::vector<std::string> names(known);
    for (const auto& item : value_.items()) {
      if (std::find(names.begin(), names.end(), item.key()) != names.end()) continue;
      const std::string nearest = nearest_name(item.key(), names);
      fault("has an unknown key {}. {}", shown(Json(item.key())),
            nearest.empty() ? fmt::format("Known are {}.", fmt::join(known, ", ")) : fmt::format("Did you mean \"{}\"?", nearest));
    }
    for (const std::string& key : needed) {
      if (!value_.contains(key)) fault("has no key \"{}\".", key);
    }
  }

  bool has(const std::string& key) const { return value_.contains(key); }
  Node operator[](const std::string& key) const { return {value_.at(key), origin_, path_.empty() ? key : path_ + "." + key}; }

  std::vector<Node> items() const {
    if (!value_.is_array()) fault("is {}; a list is needed.", shown(value_));
    std::vector<Node> nodes;
    nodes.reserve(value_.size());
    for (size_t i = 0; i < value_.size(); ++i) nodes.emplace_back(value_[i], origin_, fmt::format("{}[{}]", path_, i));
    return nodes;
  }

  i64 integer(i64 least, i64 most) const {
    if (!value_.is_number_integer()) fault("is {}; a whole number is needed.", shown(value_));
    const bool huge = value_.is_number_unsigned() && value_.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
    if (huge || value_.get<i64>() < least || value_.get<i64>() > most)
      fault("= {} must lie between {} and {}.", shown(value_), least, most);
    return value_.get<i64>();
  }

  int small(i64 least) const { return static_cast<int>(integer(least, kMostInt)); }

  bool boolean() const {
    if (!value_.is_boolean()) fault("is {}; true or false is needed.", shown(value_));
    return value_.get<bool>();
  }

  std::string text() const {
    if (!value_.is_string()) fault("is {}; a string is needed.", shown(value_));
    return value_.get<std::string>();
  }

  /// The value among `values` whose name this string is.
  template <class Enum>
  Enum choice(std::initializer_list<Enum> values) const {
    const std::string name = text();
    std::vector<std::string> names;
    for (const Enum value : values) {
      if (name == name_of(value)) return value;
      names.emplace_back(name_of(value));
    }
    fault("= {} is unknown. Use one of {}.", shown(value_), fmt::join(names, ", "));
  }

 private:
  const Json& value_;
  const std::string& origin_;
  std::string path_;
};

Stage read_stage(const Node& node) {
  node.expect_keys({"ranks", "tp", "layers"}, {"ranks", "tp", "layers"});
  Stage stage;
  for (const Node& rank : node["ranks"].items()) stage.ranks.push_back(rank.small(0));
  stage.tp = node["tp"].small(1);
  const std::vector<Node> layers = node["layers"].items();
  if (layers.size() != 2)
    node["layers"].fault("has {} numbers; two are needed: the first layer and the one after the last.", layers.size());
  stage.first_layer = layers[0].small(0);
  stage.end_layer = layers[1].small(0);
  return stage;
}

Group read_group(const Node& node) {
  node.expect_keys({"dp", "stages"}, {"stages"});
  Group group;
  if (node.has("dp")) group.dp = node["dp"].small(1);
  for (const Node& stage : node["stages"].items()) group.stages.push_back(read_stage(stage));
  return group;
}

ParamSplit read_split(const Node& node) {
  node.expect_keys({"parameter", "cuts"}, {"parameter", "cuts"});
  ParamSplit split;
  split.parameter = node["parameter"].text();
  for (const Node& cut : node["cuts"].items()) {
    cut.expect_keys({"dim", "ways"}, {"dim", "ways"});
    split.cuts.push_back({cut["dim"].small(0), cut["ways"].small(1)});
  }
  return split;
}

std::string text_of(const Stage& stage) {
  return fmt::format("{{\"ranks\": [{}], \"tp\": {}, \"layers\": [{}, {}]}}", fmt::join(stage.ranks, ", "), stage.tp, stage.first_layer,
                     stage.end_layer);
}

std::string text_of(const Group& group) {
  std::string stages;
  for (const Stage& stage : group.stages) stages += fmt::format("{}\n      {}", stages.empty() ? "" : ",", text_of(stage));
  return fmt::format("{{\"dp\": {}, \"stages\": [{}\n    ]}}", group.dp, stages);
}

std::string text_of(const ParamSplit& split) {
  std::string cuts;
  for (const Cut& cut : split.cuts) cuts += fmt::format("{}{{\"dim\": {}, \"ways\": {}}}", cuts.empty() ? "" : ", ", cut.dim, cut.ways);
  return fmt::format("{{\"parameter\": {}, \"cuts\": [{}]}}", quoted(split.parameter), cuts);
}

template <class Item>
std::string text_of(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) text += fmt::format("{}\n    {}", text.empty() ? "" : ",", text_of(item));
  return items.empty() ? "[]" : "[" + text + "\n  ]";
}

Json parse(const std::string& text, const std::string& origin) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {  // parse_error; out_of_range for a number such as 1e999
    std::string_view reason = error.what();
    if (const size_t end = reason.find("] "); end != std::string_view::npos) reason.remove_prefix(end + 2);
    user_error("{}: this is no valid JSON: {}. Mend the file, or print a fresh one with `switchyard show plan`.", origin, reason);
  }
}

}  // namespace

std::string to_json(const Strategy& strategy) {
  return fmt::format(
      "{{\n  \"name\": {},\n  \"groups\": {},\n  \"splits\": {},\n  \"recompute\": \"{}\",\n  \"schedule\": \"{}\",\n"
      "  \"sequence_parallel\": {},\n  \"micro_batch_tokens\": {}\n}}\n",
      quoted(strategy.name), text_of(strategy.groups), text_of(strategy.splits), name_of(strategy.recompute), name_of(strategy.schedule),
      strategy.sequence_parallel, strategy.micro_batch_tokens);
}

Strategy strategy_from_json(const std::string& text, const std::string& origin) {
  const Json document = parse(text, origin);
  const Node root(document, origin, "");
  root.expect_keys({"name", "groups", "splits", "recompute", "schedule", "sequence_parallel", "micro_batch_tokens"}, {"groups"});
  Strategy strategy;
  strategy.name = root.has("name") ? root["name"].text() : origin;
  for (const Node& group : root["groups"].items()) strategy.groups.push_back(read_group(group));
  if (root.has("splits")) {
    for (const Node& split : root["splits"].items()) strategy.splits.push_back(read_split(split));
  }
  if (root.has("recompute")) strategy.recompute = root["recompute"].choice({Recompute::none, Recompute::selective, Recompute::full});
  if (root.has("schedule")) strategy.schedule = root["schedule"].choice({ScheduleKind::gpipe, ScheduleKind::one_f_one_b});
  if (root.has("sequence_parallel")) strategy.sequence_parallel = root["sequence_parallel"].boolean();
  if (root.has("micro_batch_tokens")) strategy.micro_batch_tokens = root["micro_batch_tokens"].integer(0, std::numeric_limits<i64>::max());
  return strategy;
}

}  // namespace switchyard::config
