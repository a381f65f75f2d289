// Numbers of things in messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/units.hpp"

namespace switchyard {

/// "1 host", "2 hosts".
inline std::string count_of(i64 number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

}  // namespace switchyard
