// How long a peer has been silent.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace switchyard::comm {

/// Counts silence up to a timeout. Time in which this process itself stands still, as between SIGSTOP and SIGCONT,
/// hardly counts: what the others have sent meanwhile is only then heard.
class Silence {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Silence(std::chrono::milliseconds timeout, Clock::time_point now = Clock::now())
      : timeout_(timeout), last_(now) {}

  /// over() is asked again within this time. What is longer than that counts as so much.
  Clock::duration step() const { return std::max<Clock::duration>(timeout_ / 8, std::chrono::milliseconds(1)); }
  /// Whether it has lasted for the timeout.
  bool over(Clock::time_point now = Clock::now()) {
    counted_ += std::min(now - last_, step());
    last_ = now;
    return counted_ >= timeout_;
  }
  /// Something was heard.
  void restart() { counted_ = {}; }

 private:
  Clock::duration timeout_, counted_{};
  Clock::time_point last_;
};

/// Waits for `done`, for the timeout at most, and gives whether it is so. heard: whether something was heard since it
/// was asked before.
template <class Done, class Heard>
bool wait_within(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                 std::chrono::milliseconds timeout, const Done& done, const Heard& heard) {
  Silence silence(timeout);
  while (!changed.wait_for(lock, silence.step(), done)) {
    if (heard()) silence.restart();
    if (silence.over()) return done();
  }
  return true;
}
template <class Done>
bool wait_within(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                 std::chrono::milliseconds timeout, const Done& done) {
  return wait_within(changed, lock, timeout, done, [] { return false; });
}

}  // namespace switchyard::comm
