// Matrix product rate of the calling thread and its intra-op threads, the basis of "share of the matmul peak".
#pragma once

#include <ATen/core/Tensor.h>

#include "base/clock.hpp"
#include "base/units.hpp"

namespace switchyard::kernels {

/// Rate of square products of `type` on `device`, as large as its full rate needs, repeated for about `duration` by
/// `clock` after a warm-up. The operands are not in the thread's RankMemory.
FlopsPerSecond matmul_rate(at::ScalarType type, const at::Device& device, Seconds duration,
                           SecondsClock clock = wall_seconds);

}  // namespace switchyard::kernels
