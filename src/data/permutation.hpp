// A pseudo-random permutation, computed element by element.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.hpp"

namespace switchyard::data {

/// A bijection of [0, size), chosen by (seed, stream); it stores no table, so any element is computed directly. A
/// balanced Feistel network over the next even power of two, walked until it falls inside (at most 4 rounds on
/// average).
class Permutation {
 public:
  Permutation(i64 size, std::uint64_t seed, std::uint64_t stream);
  /// The element at a place in [0, size).
  i64 operator[](i64 place) const;

 private:
  static constexpr int kRounds = 6;
  i64 size_;
  int half_bits_;
  std::array<std::uint64_t, kRounds> keys_{};
};

}  // namespace switchyard::data
