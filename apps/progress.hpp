// What commands say while they compute.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace switchyard {
class StatusLine;
struct ProgressLines;
}  // namespace switchyard

namespace switchyard::apps {

/// Is called by a function that computes, on its caller's thread. What it throws ends the function.
struct Progress {
  std::function<void(std::string)> now = [](const std::string&) {};           // what is going on
  std::function<void(const std::string&)> print = [](const std::string&) {};  // lines that come before the result
  std::function<void()> poll = [] {};                                         // many times a second, in long searches
};

/// What is going on is shown by `status`, which must outlive the result; lines go to standard output.
Progress shown_on(StatusLine& status);
/// The lines of a status line where there is no terminal: none with --json.
std::optional<ProgressLines> lines_of(bool json);

}  // namespace switchyard::apps
