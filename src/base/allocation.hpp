// What the allocator makes of a request.
#pragma once

#include "base/units.hpp"

namespace switchyard {

/// Blocks start on cache lines of their own.
inline constexpr i64 kAllocationAlignment = 64;
/// Bytes that a block of so many bytes takes.
constexpr i64 allocated(i64 bytes) {
  return (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
}

}  // namespace switchyard
