// Work of a rank on its way beside what the rank computes.
#pragma once

#include <functional>
#include <memory>

#include "runtime/stream.hpp"

namespace switchyard::runtime {

/// One piece of work, with all that it needs. It releases its operands when it is awaited, on the waiting thread: so
/// the memory taken follows from the code alone. Work that nobody waits for, because the run failed, ends by itself.
class Flight {
 public:
  /// When it ran, and since when the caller waited for it.
  struct Times {
    Instant begin, end, waiting;
  };
  /// device: to which the work is given. What is started comes after what the starting thread had given to it, and
  /// before what the waiting thread gives to it next.
  explicit Flight(std::function<void()> work, const at::Device& device = at::kCPU);
  /// Runs it at once.
  const Times& run();
  /// Starts it on the stream, behind what that has to do.
  void start(Stream& stream);
  bool started() const { return started_; }
  /// Waits until it has ended, if it was started. Throws what made it fail.
  const Times& wait();

 private:
  struct State;
  std::shared_ptr<State> state_;
  bool started_ = false;
};

}  // namespace switchyard::runtime
