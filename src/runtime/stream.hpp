// Streams and signals of one rank: queues of work that run concurrently, and the flags by which they wait for each
// other. A CPU stream is a thread; work of a device is issued in the same order.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace switchyard::runtime {

/// Thrown in work that waits when another stream of the rank has failed; the rank reports the first error.
class Cancelled : public std::exception {};

/// Flags of one step. Thread-safe.
class Signals {
 public:
  explicit Signals(size_t count) : set_(count, false) {}
  void set(size_t flag);
  /// Blocks until the flag is set; throws Cancelled once fail() has been called.
  void wait(size_t flag);
  void fail(std::exception_ptr error);
  /// Rethrows the first error, if any.
  void rethrow();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> set_;
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
