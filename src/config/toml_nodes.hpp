// TOML values as messages show them.
#pragma once

#include <toml++/toml.h>

#include <string>

namespace switchyard::config {

/// UserError with place and reason for text that is not TOML.
toml::table parse_toml(const std::string& text, const std::string& origin);

/// A value as text: true, 1, 0.9, "one".
std::string shown(const toml::node& node);

/// "a string", "an integer".
std::string type_name(const toml::node& node);

}  // namespace switchyard::config
