#include "config/json_node.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace switchyard::config {
namespace {

constexpr i64 kMostInt = 1 << 30;

/// A value as a message shows it: cut short, in one line.
std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  constexpr size_t kLongest = 40;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

Json parse_json(const std::string& text, const std::string& origin, const std::string& remedy) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {  // parse_error; out_of_range for a number such as 1e999
    std::string_view reason = error.what();
    if (const size_t end = reason.find("] "); end != std::string_view::npos) reason.remove_prefix(end + 2);
    user_error("{}: this is not valid JSON: {}. {}", origin, reason, remedy);
  }
}

void Node::expect_keys(const std::vector<std::string>& known, const std::vector<std::string>& needed) const {
  if (!value_.is_object())
    error("is {}; an object is needed, with the keys {}.", shown(value_), fmt::join(known, ", "));
  for (const auto& item : value_.items()) {
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    const std::string nearest = nearest_name(item.key(), known);
    error("has an unknown key {}. {}", shown(Json(item.key())),
          nearest.empty() ? fmt::format("Known are {}.", fmt::join(known, ", "))
                          : fmt::format("Did you mean \"{}\"?", nearest));
  }
  for (const std::string& key : needed) {
    if (!value_.contains(key)) error("has no key \"{}\".", key);
  }
}

bool Node::has(const std::string& key) const {
  if (!value_.is_object()) error("is {}; an object is needed.", shown(value_));
  return value_.contains(key);
}

Node Node::operator[](const std::string& key) const {
  if (!value_.is_object()) error("is {}; an object is needed, with the key \"{}\".", shown(value_), key);
  if (!value_.contains(key)) error("has no key \"{}\".", key);
  return {value_.at(key), origin_, path_.empty() ? key : path_ + "." + key};
}

std::vector<Node> Node::items() const {
  if (!value_.is_array()) error("is {}; a list is needed.", shown(value_));
  std::vector<Node> nodes;
  nodes.reserve(value_.size());
  for (size_t i = 0; i < value_.size(); ++i) nodes.emplace_back(value_[i], origin_, fmt::format("{}[{}]", path_, i));
  return nodes;
}

i64 Node::integer(i64 least, i64 most) const {
  if (!value_.is_number_integer()) error("is {}; a whole number is needed.", shown(value_));
  const bool huge = value_.is_number_unsigned() && value_.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
  if (huge || value_.get<i64>() < least || value_.get<i64>() > most)
    error("= {} must lie between {} and {}.", shown(value_), least, most);
  return value_.get<i64>();
}

int Node::small(i64 least) const { return static_cast<int>(integer(least, kMostInt)); }

std::vector<std::string> Node::keys() const {
  if (!value_.is_object()) error("is {}; an object is needed.", shown(value_));
  std::vector<std::string> names;
  for (const auto& item : value_.items()) names.push_back(item.key());
  return names;
}

double Node::number() const {
  if (!value_.is_number()) error("is {}; a number is needed.", shown(value_));
  return value_.get<double>();
}

double Node::number(double least, double most) const {
  const double value = number();
  if (!(value >= least && value <= most)) error("= {} must lie between {} and {}.", shown(value_), least, most);
  return value;
}

bool Node::boolean() const {
  if (!value_.is_boolean()) error("is {}; true or false is needed.", shown(value_));
  return value_.get<bool>();
}

std::string Node::text() const {
  if (!value_.is_string()) error("is {}; a string is needed.", shown(value_));
  return value_.get<std::string>();
}

void Node::error_unknown(const std::vector<std::string>& names) const {
  error("= {} is unknown. Use one of {}.", shown(value_), fmt::join(names, ", "));
}

}  // namespace switchyard::config
