// What a command is doing, for a person who waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace switchyard::apps {

/// A line on standard error, rewritten once a second, from two seconds after its start on: "plan: searching, 3 s". Only
/// on a terminal, and it is erased at the end.
class StatusLine {
 public:
  explicit StatusLine(std::string command);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  /// What goes on from now on.
  void now(std::string what);

 private:
  void print();
  const std::string command_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable end_;
  std::string what_;
  size_t shown_ = 0;  // characters of the line
  bool ended_ = false;
  std::thread printer_;  // none where standard error is no terminal
};

}  // namespace switchyard::apps
