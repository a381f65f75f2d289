#include "train/progress.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <utility>

#include "base/text.hpp"
#include "base/wrapped_text.hpp"

namespace switchyard::train {

namespace {

constexpr size_t kPaceSteps = 20;
const std::string kGap = "  ", kBold = "\x1b[1m", kPlain = "\x1b[0m", kErase = "\x1b[K";
constexpr int kAlways = 9;  // importance

Seconds between(Clock::time_point from, Clock::time_point to) {
  return {std::chrono::duration<double>(to - from).count()};
}

/// Results of a step, in the order of the line.
std::vector<Progress::Field> results_of(const StepRecord& record) {
  if (record.skipped) return {{"skipped: loss or gradient not finite", kAlways}};
  std::vector<Progress::Field> fields{
      {record.loss ? fmt::format("loss {:.4f}", *record.loss) : "no labels", kAlways},
      {fmt::format("norm {:.3g}", record.grad_norm), 2},
      {fmt::format("lr {:.2e}", record.learning_rate), 3},
      {fmt::format("{}{} tok/s", record.emulated.empty() ? "" : "emulated ", format_count(record.tokens_per_second())),
       5}};
  if (record.matmul_share) fields.push_back({fmt::format("{:.0f}% of peak", 100 * *record.matmul_share), 4});
  if (!record.peak_memory.empty()) fields.push_back({format_bytes(std::ranges::max(record.peak_memory)), 1});
  return fields;
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
  pace_.push_back(record.emulated.empty() ? record.time.count : between(step_began_, settings_.now()).count);
  if (pace_.size() > kPaceSteps) pace_.pop_front();
  results_ = results_of(record);
  count(record);
  step_began_ = settings_.now();
  const bool due = (record.step - settings_.first_step) % settings_.every == 0 || record.step == settings_.last_step ||
                   record.skipped;
  const Status status{fmt::format("step {}/{}", record.step, settings_.last_step), {0}};
  if (due)
    print_line(status);
  else if (settings_.terminal)
    show(status);
}

void Progress::tick() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = settings_.now();
  const bool in_step = between_.empty();
  if (now - printed_ < kSilence || (in_step && next_step_ > settings_.last_step)) return;
  const Seconds running = between(step_began_, now);
  const Status status{fmt::format("step {}/{}  {} {}", in_step ? next_step_ : next_step_ - 1, settings_.last_step,
                                  in_step ? "running" : between_, format_duration({std::round(running.count)})),
                      in_step ? running : Seconds{0}};
  if (settings_.terminal)
    show(status);
  else
    print_line(status);
}

void Progress::say(const std::string& text, size_t indent) {
  const std::lock_guard lock(mutex_);
  print((shown_ ? '\r' + kErase : "") + wrapped_on_terminal(text, columns(), indent) + '\n');
  printed_ = settings_.now();
  if (shown_) show(*shown_);
}

void Progress::now(const std::string& what) {
  const std::lock_guard lock(mutex_);
  between_ = what;
  step_began_ = settings_.now();
}

std::string Progress::time_left(Seconds of_current_step) const {
  const i64 steps = settings_.last_step - next_step_ + 1;
  if (pace_.empty() || steps <= 0) return "";
  const double mean = std::accumulate(pace_.begin(), pace_.end(), 0.0) / static_cast<double>(pace_.size());
  // A step that takes longer than the mean is assumed to end now.
  const double left = mean * static_cast<double>(steps) - std::min(of_current_step.count, mean);
  return "left " + format_duration({std::round(left)});
}

// On a terminal that is too narrow the fields that matter least are left out.
std::string Progress::line_of(const Status& status) const {
  std::vector<Field> fields = results_;
  if (const std::string left = time_left(status.running); !left.empty()) fields.push_back({left, kAlways - 1});
  const size_t columns = this->columns();
  const auto width = [&] {
    size_t sum = status.step.size();
    for (const Field& field : fields) sum += kGap.size() + field.text.size();
    return sum;
  };
  while (columns > 0 && width() >= columns && !fields.empty())
    fields.erase(std::ranges::min_element(fields, {}, &Field::importance));
  std::string rest;
  for (const Field& field : fields) rest += kGap + field.text;
  const std::string first = columns > 0 ? status.step.substr(0, columns - 1) : status.step;
  return (settings_.terminal && settings_.colour ? kBold + first + kPlain : first) + rest;
}

// Also after something could not be printed: its disk may have room again.
void Progress::print(const std::string& text) {
  out_.clear();
  out_ << text << std::flush;
}

// A line that stays, in place of the status line.
void Progress::print_line(const Status& status) {
  printed_ = settings_.now();
  const bool over = std::exchange(shown_, std::nullopt).has_value();
  print((over ? '\r' + kErase : "") + line_of(status) + '\n');
}

void Progress::show(const Status& status) {
  printed_ = settings_.now();
  // The rest of the line is erased: it may be longer.
  print('\r' + line_of(status) + kErase);
  shown_ = status;
}

void Progress::end_line() {
  if (shown_) print("\n");
  shown_.reset();
}

void Progress::count(const StepRecord& record) {
  ++steps_;
  tokens_ += record.tokens;
  seconds_ += record.time.count;
  emulated_ |= !record.emulated.empty();
  skipped_ += record.skipped;
  if (record.skipped || !record.loss) return;
  if (!first_loss_) first_loss_ = record.loss;
  last_loss_ = record.loss;
}

void Progress::summarize() {
  const std::lock_guard lock(mutex_);
  if (steps_ == 0) return;
  end_line();
  next_step_ = settings_.last_step + 1;  // also where a signal ended the run earlier
  const double rate = seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0;
  std::string text = fmt::format("{} step{}, {} tokens in {}{} ({} tok/s)", steps_, steps_ == 1 ? "" : "s",
                                 format_count(static_cast<double>(tokens_)), emulated_ ? "an emulated " : "",
                                 format_duration({seconds_}), format_count(rate));
  if (first_loss_) text += fmt::format(", loss {:.4f} -> {:.4f}", *first_loss_, *last_loss_);
  if (skipped_ > 0) text += fmt::format(", {} update{} skipped", skipped_, skipped_ == 1 ? "" : "s");
  print(wrapped_on_terminal(text, columns()) + '\n');
}

Heartbeat::Heartbeat(std::function<void()> beat, std::chrono::milliseconds interval)
    : thread_([this, beat = std::move(beat), interval](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (!stopped_.wait_for(lock, stop, interval, [&stop] { return stop.stop_requested(); })) beat();
      }) {}

}  // namespace switchyard::train
