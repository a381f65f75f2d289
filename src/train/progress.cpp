#include "train/progress.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <utility>

namespace switchyard::train {

namespace {

constexpr size_t kPaceSteps = 20;

/// Two digits at least: "87", "950", "3.4k", "34k", "1.2M".
std::string short_count(double count) {
  for (const char* unit : {"", "k", "M", "G"}) {
    if (count < 999.5) return fmt::format("{:.{}f}{}", count, count < 9.95 && *unit ? 1 : 0, unit);
    count /= 1000;
  }
  return fmt::format("{:.0f}T", count);
}

Seconds between(Clock::time_point from, Clock::time_point to) {
  return {std::chrono::duration<double>(to - from).count()};
}

}  // namespace

Progress::Progress(std::ostream& out, ProgressSettings settings)
    : out_(out),
      settings_(std::move(settings)),
      next_step_(settings_.first_step),
      step_began_(settings_.now()),
      printed_(step_began_) {}

Progress::~Progress() { end_line(); }

void Progress::step_done(const StepRecord& record) {
  const std::lock_guard lock(mutex_);
  next_step_ = record.step + 1;
  pace_.push_back(record.time.count);
  if (pace_.size() > kPaceSteps) pace_.pop_front();
  rates_ = fmt::format("  loss {:.4f}  {} tok/s", record.loss, short_count(record.tokens_per_second()));
  if (record.skipped) rates_ = "  skipped: loss or gradient not finite";
  step_began_ = settings_.now();
  const bool due = (record.step - settings_.first_step) % settings_.every == 0 || record.step == settings_.last_step ||
                   record.skipped;
  if (settings_.terminal || due)
    print(fmt::format("step {}/{}{}{}", record.step, settings_.last_step, rates_, time_left({0})));
}

void Progress::tick() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = settings_.now();
  if (now - printed_ < kSilence || next_step_ > settings_.last_step) return;
  const Seconds running = between(step_began_, now);
  print(fmt::format("step {}/{}  running {}{}{}", next_step_, settings_.last_step,
                    format_duration({std::round(running.count)}), rates_, time_left(running)));
}

void Progress::say(const std::string& text) {
  const std::lock_guard lock(mutex_);
  end_line();
  out_ << text << '\n' << std::flush;
  printed_ = settings_.now();
}

std::string Progress::time_left(Seconds of_current_step) const {
  const i64 steps = settings_.last_step - next_step_ + 1;
  if (pace_.empty() || steps <= 0) return "";
  const double mean = std::accumulate(pace_.begin(), pace_.end(), 0.0) / static_cast<double>(pace_.size());
  // A step that takes longer than the mean is assumed to end now.
  const double left = mean * static_cast<double>(steps) - std::min(of_current_step.count, mean);
  return "  left " + format_duration({std::round(left)});
}

void Progress::print(const std::string& text) {
  printed_ = settings_.now();
  if (!settings_.terminal) {
    out_ << text << '\n' << std::flush;
    return;
  }
  out_ << '\r' << text;
  if (text.size() < width_) out_ << std::string(width_ - text.size(), ' ');
  width_ = text.size();
  out_ << std::flush;
}

void Progress::end_line() {
  if (width_ > 0) out_ << '\n' << std::flush;
  width_ = 0;
}

Heartbeat::Heartbeat(std::function<void()> beat, std::chrono::milliseconds interval)
    : thread_([this, beat = std::move(beat), interval](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (!stopped_.wait_for(lock, stop, interval, [&stop] { return stop.stop_requested(); })) beat();
      }) {}

}  // namespace switchyard::train
