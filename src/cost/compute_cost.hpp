// What kernels cost on a device.
#pragma once

#include "cluster/hardware.hpp"

namespace switchyard::cost {

/// A product (m, k) x (k, n) -> (m, n) in `type`: bound by arithmetic or by memory, whichever takes longer.
/// formula  launch + max(F / (R matmul_curve(F) width_curve(min(m, n, k))),  M / (W memory_curve(M)))
///          F = 2 m n k flops,  M = bytes of both inputs and the output, each once;  R, W the device's rates for `type`
/// edges    a dim of 0 is no product and takes no time
/// source   NVIDIA, Matrix Multiplication Background User's Guide, DU-09799-001, chapters 2 (bounds) and 2.3 (tiles)
/// errors   UserError if the cluster file has no rates for `type`; InternalError for a negative dim
Seconds matmul_time(const cluster::Device& device, DType type, i64 m, i64 n, i64 k);

/// A kernel bound by memory that moves `moved` bytes, those read and those written.
/// formula  launch + M / (W memory_curve(M))
/// edges    no bytes are no kernel and take no time
/// errors   as matmul_time
Seconds kernel_time(const cluster::Device& device, DType type, Bytes moved);

}  // namespace switchyard::cost
