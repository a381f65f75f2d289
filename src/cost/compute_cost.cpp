#include "cost/compute_cost.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::cost {

Seconds call_time(const cluster::Device& device, DType type, const Work& work) {
  check(work.flops >= 0 && work.bytes >= 0 && work.after >= 0, "a call of {} flops that moves {} and {} bytes",
        work.flops, work.bytes, work.after);
  if (work.flops == 0 && work.bytes == 0 && work.after == 0) return {0};
  const double arithmetic =
      work.flops == 0 ? 0 : work.flops / product_rate(device, type, work.flops, work.narrowest).count;
  const double memory = work.bytes == 0 ? 0 : work.bytes / memory_rate(device, type, work.bytes).count;
  const double after = work.after == 0 ? 0 : work.after / memory_rate(device, type, work.after).count;
  return device.launch + Seconds{std::max(arithmetic, memory) + after};
}

Seconds moving_time(const cluster::Device& device, DType type, const char* name, double rows, double bytes_per_row) {
  if (rows == 0) return {0};
  if (const cluster::OperatorTable* table = device.measured(type, name))
    return {table->seconds(rows, 1, bytes_per_row)};
  return call_time(device, type, {.bytes = rows * bytes_per_row});
}

BytesPerSecond memory_rate(const cluster::Device& device, DType type, double bytes) {
  return device.rates_of(type).memory * device.memory_curve.at(bytes);
}

FlopsPerSecond product_rate(const cluster::Device& device, DType type, double flops, double narrowest) {
  const cluster::Rates& rates = device.rates_of(type);
  return rates.matmul * (rates.matmul_curve.at(flops) * (narrowest > 0 ? device.width_curve.at(narrowest) : 1));
}

FlopsPerSecond attention_rate(const cluster::Device& device, DType type, double head_dim, bool backward) {
  constexpr double kManyFlops = 1e15, kUsualHead = 128;
  const cluster::Rates& rates = device.rates_of(type);
  const FlopsPerSecond own = backward ? rates.attention_backward : rates.attention;
  if (own.count == 0) return product_rate(device, type, kManyFlops, head_dim);
  return own * (device.width_curve.at(head_dim) / device.width_curve.at(kUsualHead));
}

}  // namespace switchyard::cost
