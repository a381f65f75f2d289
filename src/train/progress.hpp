// The progress line of a training run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iosfwd>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "train/metrics.hpp"

namespace switchyard::train {

struct ProgressSettings {
  i64 first_step = 1, last_step = 1;                           // those of this run
  bool terminal = false;                                       // lines can be rewritten
  bool colour = false;                                         // on a terminal
  i64 every = 1;                                               // steps between lines that stay
  std::function<size_t()> columns = [] { return size_t{0}; };  // width of the terminal now; 0: not known
  std::function<Clock::time_point()> now = Clock::now;
};

/// "step 12/100  loss 4.1230  norm 1.2  lr 3.00e-04  3.4k tok/s  45% of peak  139 MiB  left 2 min 10 s", on one line
/// however narrow the terminal is. On a terminal the steps between those whose lines stay are shown, too, on a status
/// line below that is rewritten. Memory: the highest peak of a rank in the step. The time left is the number of
/// remaining steps times the mean time of the last 20. Thread-safe. `out` must outlive it.
class Progress {
 public:
  static constexpr std::chrono::seconds kSilence{2};
  /// importance: of those for which there is no room the least goes first.
  struct Field {
    std::string text;
    int importance = 0;
  };

  Progress(std::ostream& out, ProgressSettings settings);
  /// Ends a line that is still open.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step_done(const StepRecord& record);
  /// Prints how long the current step has been running, if nothing was printed for kSilence.
  void tick();
  /// From now on `what` goes on, between two steps; empty: that is over, and the next step begins.
  void now(const std::string& what);
  /// Prints a text of its own above the status line, on a terminal wrapped at its width. indent: of its lines after the
  /// first.
  void say(const std::string& text, size_t indent = 0);
  /// After the last step: prints what all steps together did, if there were any: "12 steps, 96k tokens in 38 s (2.5k
  /// tok/s), loss ..., 1 update skipped".
  void summarize();

 private:
  /// Content of the status line: a step and how long the current one has been running.
  struct Status {
    std::string step;
    Seconds running;
  };
  void print(const std::string& text);
  void print_line(const Status& status);
  void show(const Status& status);
  std::string line_of(const Status& status) const;
  size_t columns() const { return settings_.terminal ? settings_.columns() : 0; }
  void count(const StepRecord& record);
  void end_line();
  std::string time_left(Seconds of_current_step) const;

  std::ostream& out_;
  const ProgressSettings settings_;
  std::mutex mutex_;
  i64 next_step_;
  std::deque<double> pace_;     // seconds of each of the last steps
  std::vector<Field> results_;  // results of the last step
  i64 steps_ = 0, skipped_ = 0, tokens_ = 0;
  bool emulated_ = false;  // the seconds
  double seconds_ = 0;
  std::optional<double> first_loss_, last_loss_;
  std::string between_;  // what goes on between two steps; empty: nothing
  Clock::time_point step_began_, printed_;
  std::optional<Status> shown_;  // on the status line; none: there is no such line
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
