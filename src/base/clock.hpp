// How long something took.
#pragma once

#include <chrono>
#include <ctime>

namespace switchyard {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Seconds from some start; differences of two calls on one thread are times.
using SecondsClock = double (*)();

inline double wall_seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

/// Processor time of the calling thread: without what it waited for, and without what other threads took of its core.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace switchyard
