// Streams and signals of one rank: queues of work that run concurrently, and the flags by which they wait for each
// other. A stream is a thread, and what that gives to a device is a stream of the device.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/device_order.hpp"

namespace switchyard::runtime {

/// Thrown in work that waits when another stream of the rank has failed; the rank reports the first error.
class Cancelled : public std::exception {};

/// Flags of one step. Thread-safe.
class Signals {
 public:
  explicit Signals(size_t count, at::Device device = at::kCPU)
      : device_(device), set_(count, false), marks_(device.is_cpu() ? 0 : count) {}
  /// Sets the flag, which stands for all that the calling thread has given to the device so far.
  void set(size_t flag);
  /// Blocks until the flag is set, and what the calling thread gives to the device next comes after what the flag
  /// stands for; throws Cancelled once fail() has been called.
  void wait(size_t flag);
  /// cause: this error takes the place of an earlier one, which follows from it.
  void fail(std::exception_ptr error, bool cause = false);
  bool failed();
  /// Rethrows the cause, else the first error, if any.
  void rethrow();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  at::Device device_;
  std::vector<bool> set_;
  std::vector<Mark> marks_;  // marks of flags that are set, where there is a device
  std::exception_ptr error_;
};

/// A thread that runs the work given to it, in order.
class Stream {
 public:
  /// `begin` runs first on the thread (sets the number of threads of compute libraries and the memory scope).
  explicit Stream(std::function<void()> begin);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void enqueue(std::function<void()> work);
  /// Blocks until all work given so far is done.
  void drain();

 private:
  void loop(const std::function<void()>& begin);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace switchyard::runtime
