// Messages to a person: on standard error, as a rule.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <utility>

namespace switchyard {

/// Prints at once. Where `out` can't be written (its disk is full), the message is lost; fmt::print would throw.
template <class... Args>
void print_message(std::FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace switchyard
