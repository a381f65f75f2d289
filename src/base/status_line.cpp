#include "base/status_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/messages.hpp"
#include "base/wrapped_text.hpp"

namespace switchyard {

bool rewrites_lines(std::FILE* out) { return isatty(fileno(out)) != 0 && environment("TERM") != "dumb"; }

size_t terminal_columns(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::optional<ProgressLines> progress_lines() {
  const std::optional<std::string> given = environment("SWITCHYARD_PROGRESS");
  if (!given) return ProgressLines{};
  constexpr double kLongest = 1e6;
  double seconds = 0;
  const char* end = given->data() + given->size();
  const bool number = std::from_chars(given->data(), end, seconds).ptr == end;
  if (!number || !(seconds > 0 && seconds <= kLongest)) return std::nullopt;  // also rejects NaN
  const std::chrono::milliseconds look(std::lround(std::ceil(1000 * seconds)));
  return ProgressLines{look, 3 * look};
}

StatusLine::StatusLine(std::string command, std::string what, std::optional<ProgressLines> lines, std::FILE* out,
                       std::chrono::milliseconds silence)
    : command_(std::move(command)), out_(out), what_(std::move(what)) {
  if (rewrites_lines(out_))
    printer_ = std::thread([this, silence] { rewrite_line(silence); });
  else if (lines)
    printer_ = std::thread([this, lines] { print_lines(*lines); });
}

void StatusLine::rewrite_line(std::chrono::milliseconds silence) {
  constexpr std::chrono::milliseconds kInterval{1000};
  std::unique_lock lock(mutex_);
  for (auto wait = silence; !end_.wait_for(lock, wait, [&] { return ended_; }); wait = kInterval) print();
}

void StatusLine::print_lines(const ProgressLines& lines) {
  std::unique_lock lock(mutex_);
  std::string printed;
  auto last = start_;
  for (auto at = start_ + lines.look; !end_.wait_until(lock, at, [&] { return ended_; }); at += lines.look) {
    if (what_ == printed && at - last < lines.every) continue;
    print_message(out_, "{}: {}, {}\n", command_, what_, passed());
    printed = what_;
    last = at;
  }
}

StatusLine::~StatusLine() {
  if (!printer_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  end_.notify_one();
  printer_.join();
  erase();
}

void StatusLine::now(std::string what) {
  const std::scoped_lock lock(mutex_);
  what_ = std::move(what);
}

void StatusLine::say(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  erase();
  print_message(out_, "{}\n", wrapped_on_terminal(text, terminal_columns(out_)));
}

std::string StatusLine::passed() const {
  const auto time = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start_);
  return fmt::format("{} s", time.count());
}

// A line as wide as the terminal would wrap.
void StatusLine::print() {
  const std::string before = command_ + ": ", after = ", " + passed();
  std::string what = what_;
  const size_t columns = terminal_columns(out_), others = before.size() + after.size() + 1;
  if (columns > 0 && others + what.size() > columns) {
    constexpr std::string_view kCut = "...";
    what.resize(columns > others + kCut.size() ? columns - others - kCut.size() : 0);
    what += kCut;
  }
  std::string line = before + what + after;
  if (columns > 0 && line.size() >= columns) line.resize(columns - 1);
  print_message(out_, "\r{:<{}}", line, shown_);
  shown_ = line.size();
}

void StatusLine::erase() {
  if (shown_ > 0) print_message(out_, "\r{:{}}\r", "", shown_);
  shown_ = 0;
}

}  // namespace switchyard
