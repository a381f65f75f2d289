// How fast the calling thread, with its intra-op threads, multiplies matrices: what "share of the matmul peak" refers
// to.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/units.hpp"

namespace switchyard::kernels {

/// Rate of square products (1024) of `type` on `device`, repeated for about `duration` after a first one. The operands
/// don't come from the thread's RankMemory.
FlopsPerSecond matmul_rate(at::ScalarType type, const at::Device& device, Seconds duration);

}  // namespace switchyard::kernels
