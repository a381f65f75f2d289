// What the allocator makes of a request.
#pragma once

#include "base/units.hpp"

namespace switchyard {

/// Blocks start on cache lines of their own.
inline constexpr i64 kAllocationGranule = 64;
/// Bytes that a block of so many bytes takes.
constexpr i64 allocated(i64 bytes) { return (bytes + kAllocationGranule - 1) / kAllocationGranule * kAllocationGranule; }

}  // namespace switchyard
