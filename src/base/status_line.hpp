// What a command is doing, for a person who waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace switchyard {

/// Whether lines of `out` can be rewritten: it is a terminal that knows escape sequences.
bool rewrites_lines(std::FILE* out);
/// Width of the terminal that `out` is on; 0: not known.
size_t terminal_columns(std::FILE* out);

/// When a line is printed where lines can't be rewritten: at each multiple of `look`, if what goes on has changed since
/// the last line, or `every` has passed.
struct ProgressLines {
  std::chrono::milliseconds look = std::chrono::seconds(10), every = std::chrono::seconds(30);
};
/// What the variable SWITCHYARD_PROGRESS says: `look` in seconds, a third of `every`; nothing if it is no positive
/// number.
std::optional<ProgressLines> progress_lines();

/// On a terminal a line that is rewritten once a second, from `silence` after its start on: "plan: searching, 3 s". It
/// is cut to the terminal's width and erased at the end. Elsewhere the same as lines of their own, if there are to be
/// any. Thread-safe. `out` must outlive it.
class StatusLine {
 public:
  StatusLine(std::string command, std::string what, std::optional<ProgressLines> lines = progress_lines(),
             std::FILE* out = stderr, std::chrono::milliseconds silence = std::chrono::seconds(2));
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  /// Sets what the line shows as going on.
  void now(std::string what);
  /// Prints a text of its own above the status line, on a terminal or not; it is wrapped at the terminal's width.
  void say(const std::string& text);

 private:
  void rewrite_line(std::chrono::milliseconds silence);
  void print_lines(const ProgressLines& lines);
  std::string passed() const;
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
  std::thread printer_;  // none where nothing is printed
};

}  // namespace switchyard
