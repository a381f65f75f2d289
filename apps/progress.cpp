#include "progress.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/status_line.hpp"

namespace switchyard::apps {

Progress shown_on(StatusLine& status) {
  return {.now = [&status](std::string what) { status.now(std::move(what)); },
          .print = [](const std::string& text) { fmt::print("{}", text); }};
}

std::optional<ProgressLines> lines_of(bool json) { return json ? std::nullopt : progress_lines(); }

}  // namespace switchyard::apps
