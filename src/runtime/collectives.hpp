// The collective queue of a rank within a run: exchanges of its replica on their way.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "runtime/flight.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

/// Collectives of one run of a segment, by position in the segment. They run one after the other on the stream, or,
/// without one, where they are launched.
class Collectives {
 public:
  explicit Collectives(Stream* stream) : stream_(stream) {}
  using Times = Flight::Times;
  /// Runs it on the spot without a stream, or if it is `awaited` right behind and no other is on its way.
  std::optional<Times> launch(size_t instr, const KernelCall& call, bool awaited);
  /// Waits until it has ended, unless it ran on the spot. Collectives are waited for in their order. Throws what made
  /// it fail.
  std::optional<Times> wait(size_t instr);

 private:
  Stream* stream_;
  std::deque<std::pair<size_t, Flight>> flights_;
};

}  // namespace switchyard::runtime
