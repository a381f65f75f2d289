// The progress line of a training run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iosfwd>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "train/metrics.hpp"

namespace switchyard::train {

struct ProgressSettings {
  i64 first_step = 1, last_step = 1;  // of this run
  bool terminal = false;              // rewrite one line in place; otherwise print a new line each time
  i64 every = 1;                      // steps between lines where there is no terminal
  std::function<Clock::time_point()> now = Clock::now;
};

/// "step 12/100 loss 4.1230 3.4k tok/s left 2 min 10 s". The time left is the number of remaining steps times the mean
/// time of the last 20. Thread-safe. `out` must outlive it.
class Progress {
 public:
  static constexpr std::chrono::seconds kSilence{2};

  Progress(std::ostream& out, ProgressSettings settings);
  /// Ends a line that is still open.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step_done(const StepRecord& record);
  /// Prints how long the current step has been running, if nothing was printed for kSilence.
  void tick();
  /// Prints a line of its own above the progress line.
  void say(const std::string& text);

 private:
  void print(const std::string& text);
  void end_line();
  std::string time_left(Seconds of_current_step) const;

  std::ostream& out_;
  const ProgressSettings settings_;
  std::mutex mutex_;
  i64 next_step_;
  std::deque<double> pace_;  // seconds of each of the last steps
  std::string rates_;        // loss and tokens/s of the last step
  Clock::time_point step_began_, printed_;
  size_t width_ = 0;  // of the open line on the terminal
};

/// Calls `beat` every `interval` on a thread of its own, until destroyed.
class Heartbeat {
 public:
  Heartbeat(std::function<void()> beat, std::chrono::milliseconds interval);

 private:
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last: stops before the others go
};

}  // namespace switchyard::train
