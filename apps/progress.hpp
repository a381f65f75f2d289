// What commands say while they compute.
#pragma once

#include <functional>
#include <string>

namespace switchyard {
class StatusLine;
}

namespace switchyard::apps {

/// Is called by a function that computes, on its caller's thread. What it throws ends the function.
struct Progress {
  std::function<void(std::string)> now = [](const std::string&) {};           // what is going on
  std::function<void(const std::string&)> print = [](const std::string&) {};  // lines that come before the result
  std::function<void()> poll = [] {};                                         // many times a second, in long searches
};

/// What is going on is shown by `status`, which must outlive the result; lines go to standard output.
Progress shown_on(StatusLine& status);

}  // namespace switchyard::apps
