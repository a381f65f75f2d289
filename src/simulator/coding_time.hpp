// The time of encoding and decoding what a transfer moves.
#pragma once

#include <map>

#include "cluster/hardware.hpp"
#include "codecs/codec.hpp"

namespace switchyard::simulator {

/// Messages of a transfer, each encoded by its sender and decoded by its receiver, at the device's rates, or, without
/// these, as long as reading and writing memory takes. Refers to the device.
class CodingTime {
 public:
  explicit CodingTime(const cluster::Device& device) : device_(device) {}
  /// A message of so many elements; none takes no time. feedback: its sender decodes it, too, to keep what was lost.
  /// UserError if the device lacks both kinds of rates.
  void add(codecs::Codec codec, DType type, i64 elements, int from, int to, bool feedback = false);
  /// Seconds of the rank that has most to do.
  double seconds() const;
  /// Seconds of all ranks, added up, as if they worked one after the other.
  double in_turn() const;

 private:
  const cluster::Device& device_;
  std::map<int, double> seconds_;
};

}  // namespace switchyard::simulator
