// Variables of the process's environment. No other file reads them.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace switchyard {

/// The value of a variable; nothing if it isn't set.
inline std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace switchyard
