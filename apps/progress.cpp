#include "progress.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/status_line.hpp"

namespace switchyard::apps {

Progress shown_on(StatusLine& status) {
  return {.now = [&status](std::string what) { status.now(std::move(what)); },
          .print = [](const std::string& text) { fmt::print("{}", text); }};
}

}  // namespace switchyard::apps
