// What kernels cost on a device.
#pragma once

#include "cluster/hardware.hpp"

namespace switchyard::cost {

/// One call: flops of its products, the narrowest of their dims m, n, k (0: wide enough for the full rate), bytes read
/// and written, and bytes moved after the products.
struct Work {
  double flops = 0, narrowest = 0, bytes = 0, after = 0;
};

/// Time of a call, bound by arithmetic or by memory, whichever takes longer (roofline: S. Williams, A. Waterman, D.
/// Patterson, CACM 52(4), 2009).
/// formula  launch + max(F / product_rate(F), M / memory_rate(M)) + A / memory_rate(A);   F flops, M bytes, A bytes
///          after
/// edges    without flops and bytes there is no call: no time
/// source   NVIDIA, Matrix Multiplication Background User's Guide, DU-09799-001, chapters 2 (bounds) and 2.3 (tiles)
/// errors   UserError if the cluster file has no rates for `type`; InternalError for negative work
Seconds call_time(const cluster::Device& device, DType type, const Work& work);

/// Time in which the named operator moves `bytes_per_row` bytes for each of `rows` rows: as measured, else by
/// call_time.
Seconds moving_time(const cluster::Device& device, DType type, const char* name, double rows, double bytes_per_row);

/// W memory_curve(M), W the device's memory rate for `type`.
BytesPerSecond memory_rate(const cluster::Device& device, DType type, double bytes);

/// R matmul_curve(F) width_curve(narrowest), R the device's peak for `type`.
FlopsPerSecond product_rate(const cluster::Device& device, DType type, double flops, double narrowest);

/// Rate of fused attention over documents long enough to fill the device: the device's rate for heads of 128 features,
/// which width_curve scales to other heads, or the rate of products of that width where the cluster file has none.
/// head_dim: features of a head.
FlopsPerSecond attention_rate(const cluster::Device& device, DType type, double head_dim, bool backward);

}  // namespace switchyard::cost
