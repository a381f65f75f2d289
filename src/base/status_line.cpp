#include "base/status_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/wrapped.hpp"

namespace switchyard {

bool rewrites_lines(std::FILE* out) { return isatty(fileno(out)) != 0 && environment("TERM") != "dumb"; }

size_t terminal_columns(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

StatusLine::StatusLine(std::string command, std::string what, std::FILE* out, std::chrono::milliseconds silence)
    : command_(std::move(command)), out_(out), what_(std::move(what)) {
  if (!rewrites_lines(out_)) return;
  printer_ = std::thread([this, silence] {
    constexpr std::chrono::milliseconds kInterval{1000};
    std::unique_lock lock(mutex_);
    for (auto wait = silence; !end_.wait_for(lock, wait, [&] { return ended_; }); wait = kInterval) print();
  });
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
  fmt::print(out_, "{}\n", wrapped(text, terminal_columns(out_)));
}

// A line as wide as the terminal would wrap.
void StatusLine::print() {
  const auto passed = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start_);
  const std::string before = command_ + ": ", after = fmt::format(", {} s", passed.count());
  std::string what = what_;
  const size_t columns = terminal_columns(out_), others = before.size() + after.size() + 1;
  if (columns > 0 && others + what.size() > columns) {
    constexpr std::string_view kCut = "...";
    what.resize(columns > others + kCut.size() ? columns - others - kCut.size() : 0);
    what += kCut;
  }
  std::string line = before + what + after;
  if (columns > 0 && line.size() >= columns) line.resize(columns - 1);
  fmt::print(out_, "\r{:<{}}", line, shown_);
  std::fflush(out_);
  shown_ = line.size();
}

void StatusLine::erase() {
  if (shown_ > 0) fmt::print(out_, "\r{:{}}\r", "", shown_);
  std::fflush(out_);
  shown_ = 0;
}

}  // namespace switchyard
