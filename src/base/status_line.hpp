// What a command is doing, for a person who waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace switchyard {

/// Whether lines of `out` can be rewritten: it is a terminal that knows escape sequences.
bool rewrites_lines(std::FILE* out);
/// Width of the terminal that `out` is on; 0: not known.
size_t terminal_columns(std::FILE* out);

/// A line that is rewritten once a second, from `silence` after its start on: "plan: searching, 3 s". It is cut to the
/// terminal's width and erased at the end. Only on a terminal. Thread-safe. `out` must outlive it.
class StatusLine {
 public:
  StatusLine(std::string command, std::string what, std::FILE* out = stderr,
             std::chrono::milliseconds silence = std::chrono::seconds(2));
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  /// Sets what the line shows as going on.
  void now(std::string what);
  /// Prints a text of its own above the status line, on a terminal or not; it is wrapped at the terminal's width.
  void say(const std::string& text);

 private:
  void print();
  void erase();
  const std::string command_;
  std::FILE* const out_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable end_;
  std::string what_;
  size_t shown_ = 0;  // characters of the line
  bool ended_ = false;
  std::thread printer_;  // none where there is no terminal
};

}  // namespace switchyard
