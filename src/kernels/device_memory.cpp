#include "kernels/device_memory.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include "base/errors.hpp"

namespace switchyard::kernels {
namespace {

c10::DeviceAllocator& allocator_of(const c10::Device& device) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  check(allocator != nullptr, "devices of type {} keep no statistics of memory", c10::DeviceTypeName(device.type()));
  return *allocator;
}

}  // namespace

i64 device_peak(const c10::Device& device) {
  const auto stats = allocator_of(device).getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

void reset_device_peak(const c10::Device& device) { allocator_of(device).resetPeakStats(device.index()); }

}  // namespace switchyard::kernels
