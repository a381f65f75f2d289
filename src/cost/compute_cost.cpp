#include "cost/compute_cost.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::cost {
namespace {

Seconds memory_time(const cluster::Device& device, DType type, double bytes) {
  return {bytes / (device.rates_of(type).memory.count * device.memory_curve.at(bytes))};
}

}  // namespace

Seconds matmul_time(const cluster::Device& device, DType type, i64 m, i64 n, i64 k) {
  check(m >= 0 && n >= 0 && k >= 0, "a product of {} x {} x {}", m, n, k);
  const cluster::Rates& rates = device.rates_of(type);
  if (m == 0 || n == 0 || k == 0) return {0};
  // In doubles: the product of three dims may exceed 2^63.
  const double rows = static_cast<double>(m), columns = static_cast<double>(n), inner = static_cast<double>(k);
  const double flops = 2 * rows * columns * inner;
  const double bytes = static_cast<double>(size_of(type)) * (rows * inner + inner * columns + rows * columns);
  const double share = rates.matmul_curve.at(flops) * device.width_curve.at(std::min({rows, columns, inner}));
  const Seconds arithmetic{flops / (rates.matmul.count * share)};
  return device.launch + std::max(arithmetic, memory_time(device, type, bytes));
}

Seconds kernel_time(const cluster::Device& device, DType type, Bytes moved) {
  check(moved.count >= 0, "a kernel that moves {} bytes", moved.count);
  const Seconds time = memory_time(device, type, static_cast<double>(moved.count));
  return moved.count == 0 ? Seconds{0} : device.launch + time;
}

}  // namespace switchyard::cost
