#include "config/toml_nodes.hpp"

#include <sstream>

#include "base/errors.hpp"

namespace switchyard::config {

toml::table parse_toml(const std::string& text, const std::string& origin) {
  try {
    return toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    const std::string why(error.description());
    std::string remedy;
    constexpr std::string_view kTwice = "cannot redefine existing table '";
    if (const size_t at = why.find(kTwice); at != std::string::npos) {
      const size_t begin = at + kTwice.size();
      const std::string table = why.substr(begin, why.find('\'', begin) - begin);
      remedy = table == "bucket" || table.ends_with("source")
                   ? fmt::format(". Where there are several, write each as [[{}]], with double brackets.", table)
                   : fmt::format(". Put all keys of [{}] into one table.", table);
    }
    user_error("{}:{}:{}: this is not valid TOML: {}{}", origin, error.source().begin.line, error.source().begin.column,
               why, remedy);
  }
}

std::string shown(const toml::node& node) {
  if (const auto string = node.value_exact<std::string>()) return fmt::format("\"{}\"", *string);
  if (const auto number = node.value_exact<double>()) {
    const std::string digits = fmt::format("{}", *number);  // the shortest that reads back as the same number
    return digits.find_first_not_of("-0123456789") == std::string::npos ? digits + ".0" : digits;
  }
  if (const toml::array* list = node.as_array()) {
    std::string items;
    for (const toml::node& item : *list) items += fmt::format("{}{}", items.empty() ? "" : ", ", shown(item));
    return fmt::format("[{}]", items);
  }
  std::ostringstream text;
  node.visit([&](const auto& value) { text << value; });
  return text.str();
}

std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a fraction";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

}  // namespace switchyard::config
