// The three kinds of errors, by who can fix them.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace switchyard {

/// Configuration or data is wrong. The message says what, where and how to fix it; `main` exits with 2.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Network, device or disk failed: names rank, operation and peer (or file); `main` exits with 3.
class ClusterError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A bug of Switchyard itself; `main` exits with 4.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <class... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void cluster_error(fmt::format_string<Args...> format, Args&&... args) {
  throw ClusterError(fmt::format(format, std::forward<Args>(args)...));
}

/// Base of fmt::formatter<T> that prints text(value). The text is made only when a check fails.
template <class T, std::string (*text)(const T&)>
struct FormattedBy : fmt::formatter<fmt::string_view> {
  auto format(const T& value, fmt::format_context& context) const {
    return fmt::formatter<fmt::string_view>::format(text(value), context);
  }
};

/// An invariant of the program; stays in release builds.
template <class... Args>
void check(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace switchyard
