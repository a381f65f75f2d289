#include "status_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace switchyard::apps {
namespace {

constexpr std::chrono::seconds kSilence{2}, kInterval{1};

}  // namespace

StatusLine::StatusLine(std::string command) : command_(std::move(command)) {
  if (isatty(STDERR_FILENO) == 0) return;
  printer_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    for (auto wait = kSilence; !end_.wait_for(lock, wait, [&] { return ended_; }); wait = kInterval) print();
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
  if (shown_ > 0) fmt::print(stderr, "\r{:{}}\r", "", shown_);
}

void StatusLine::now(std::string what) {
  const std::scoped_lock lock(mutex_);
  what_ = std::move(what);
}

void StatusLine::print() {
  const auto passed = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start_);
  const std::string line = fmt::format("{}: {}, {} s", command_, what_, passed.count());
  fmt::print(stderr, "\r{:<{}}", line, shown_);
  std::fflush(stderr);
  shown_ = std::max(shown_, line.size());
}

}  // namespace switchyard::apps
