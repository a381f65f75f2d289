// The collective queue of a rank within a run: exchanges of its replica on their way.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/kernel_call.hpp"
#include "runtime/stream.hpp"

namespace switchyard::runtime {

/// Collectives of one run of a segment, by position in the segment. They run one after the other on the stream, or,
/// without one, where they are launched. Their tensors are let go of where they are waited for, by the waiting thread,
/// so that the memory taken follows from the code alone. What nobody waits for, as the run failed, ends by itself.
class Collectives {
 public:
  explicit Collectives(Stream* stream) : stream_(stream) {}
  /// When a collective ran, and since when the caller waited for it.
  struct Times {
    std::chrono::steady_clock::time_point begin, end, waiting;
  };
  /// Runs it on the spot without a stream, or if it is `awaited` right behind and no other is on its way.
  std::optional<Times> launch(size_t instr, const KernelCall& call, bool awaited);
  /// Until it has ended, unless it ran on the spot. Collectives are waited for in their order. Throws what made it
  /// fail.
  std::optional<Times> wait(size_t instr);

 private:
  struct Flight;
  Stream* stream_;
  std::deque<std::pair<size_t, std::shared_ptr<Flight>>> flights_;
};

}  // namespace switchyard::runtime
