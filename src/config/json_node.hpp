// A value of a JSON document together with its path, so that each message says where.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/errors.hpp"

namespace switchyard::config {

using Json = nlohmann::json;

/// A string as a JSON string literal.
std::string quoted(const std::string& text);

/// Parses text of any content. UserError names origin, the place of the fault, and `remedy`.
Json parse_json(const std::string& text, const std::string& origin, const std::string& remedy);

/// Keeps references to the document and to origin, its file name in messages. All errors are UserErrors.
class Node {
 public:
  Node(const Json& value, const std::string& origin, std::string path)
      : value_(value), origin_(origin), path_(std::move(path)) {}

  template <class... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
    user_error("{}: {} {}", origin_, path_.empty() ? "the document" : path_,
               fmt::format(format, std::forward<Args>(args)...));
  }

  /// UserError for a key that is not in `known`, and for a missing one of `needed`.
  void expect_keys(const std::vector<std::string>& known, const std::vector<std::string>& needed) const;
  bool has(const std::string& key) const;
  bool is_null() const { return value_.is_null(); }
  Node operator[](const std::string& key) const;
  std::vector<Node> items() const;
  /// Keys of an object, whatever they are called.
  std::vector<std::string> keys() const;

  i64 integer(i64 least, i64 most) const;
  /// An integer from `least` to 2^30.
  int small(i64 least) const;
  double number() const;
  double number(double least, double most) const;
  bool boolean() const;
  std::string text() const;

  /// The value among `values` whose name_of this string is.
  template <class Enum>
  Enum choice(std::initializer_list<Enum> values) const {
    const std::string name = text();
    std::vector<std::string> names;
    for (const Enum value : values) {
      if (name == name_of(value)) return value;
      names.emplace_back(name_of(value));
    }
    error_unknown(names);
  }

 private:
  [[noreturn]] void error_unknown(const std::vector<std::string>& names) const;

  const Json& value_;
  const std::string& origin_;
  std::string path_;
};

}  // namespace switchyard::config
