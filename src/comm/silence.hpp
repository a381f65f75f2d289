// How long a peer has been silent.
#pragma once

#include <algorithm>
#include <atomic>
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

  /// Parts of a timeout in which something is heard, if at all.
  static Clock::duration step_of(std::chrono::milliseconds timeout) {
    return std::max<Clock::duration>(timeout / 8, std::chrono::milliseconds(1));
  }
  /// over() is asked again within this time. What is longer than that counts as so much.
  Clock::duration step() const { return step_of(timeout_); }
  /// Whether it has lasted for the timeout.
  bool over(Clock::time_point now = Clock::now()) {
    counted_ += std::min(now - last_, step());
    last_ = now;
    return counted_ >= timeout_;
  }
  /// Something was heard.
  void restart() { counted_ = {}; }

 private:
  std::chrono::milliseconds timeout_;
  Clock::duration counted_{};
  Clock::time_point last_;
};

/// Says when a transport has to inform other ranks that this one works: once in each step of the timeout, if it does.
class WorkSigns {
 public:
  explicit WorkSigns(std::chrono::milliseconds timeout) : step_(Silence::step_of(timeout)) {}

  /// For any thread.
  void worked() { worked_.store(true, std::memory_order_relaxed); }
  /// For one thread, which asks again within a step.
  bool due(Silence::Clock::time_point now = Silence::Clock::now()) {
    if (now - last_ < step_ || !worked_.exchange(false, std::memory_order_relaxed)) return false;
    last_ = now;
    return true;
  }
  Silence::Clock::duration step() const { return step_; }

 private:
  const Silence::Clock::duration step_;
  Silence::Clock::time_point last_{};
  std::atomic<bool> worked_ = false;
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
