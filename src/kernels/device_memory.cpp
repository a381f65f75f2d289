#include "kernels/device_memory.hpp"

#include <c10/core/CachingDeviceAllocator.h>
#ifdef SWITCHYARD_CUDA_KERNELS
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::kernels {
namespace {

c10::DeviceAllocator& allocator_of(const c10::Device& device) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  check(allocator != nullptr, "devices of type {} keep no statistics of memory", c10::DeviceTypeName(device.type()));
  return *allocator;
}

#ifdef SWITCHYARD_CUDA_KERNELS
// What cuBLAS takes of the allocator's memory (32 MiB for each stream with products, on H100), and what is lost of its
// smallest segments.
constexpr i64 kCudaRoom = i64{128} << 20;
#endif

// bytes: of tensors of so many ranks; 0: any number.
void limit(const c10::Device& device, i64 bytes, [[maybe_unused]] int ranks) {
#ifdef SWITCHYARD_CUDA_KERNELS
  if (device.is_cuda()) {
    const auto all = static_cast<double>(device_memory(device).all);
    const double share = bytes > 0 ? static_cast<double>(with_fragments(bytes) + ranks * kCudaRoom) / all : 1;
    return c10::cuda::CUDACachingAllocator::get()->setMemoryFraction(std::min(share, 1.0), device.index());
  }
#endif
  if (auto* limited = dynamic_cast<LimitedAllocator*>(c10::GetAllocator(device.type())))
    limited->limit(device.index(), with_fragments(bytes));
}

// The budgets of the ranks that share a device.
struct Shared {
  int ranks = 0, unlimited = 0;
  i64 bytes = 0;
};
std::mutex budgets_mutex;
std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Shared> budgets;

void add_budget(const c10::Device& device, i64 bytes, int sign) {
  if (device.is_cpu()) return;
  const std::lock_guard lock(budgets_mutex);
  Shared& shared = budgets[{device.type(), device.index()}];
  shared.ranks += sign;
  shared.bytes += sign * bytes;
  if (bytes == 0) shared.unlimited += sign;
  limit(device, shared.unlimited > 0 ? 0 : shared.bytes, shared.ranks);
}

}  // namespace

i64 device_peak(const c10::Device& device) {
  const auto stats = allocator_of(device).getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

void reset_device_peak(const c10::Device& device) { allocator_of(device).resetPeakStats(device.index()); }

DeviceMemory device_memory(const c10::Device& device) {
  c10::DeviceAllocator& allocator = allocator_of(device);
  const auto [free, all] = allocator.getMemoryInfo(device.index());
  DeviceMemory memory{.all = static_cast<i64>(all), .free = static_cast<i64>(free)};
  if (allocator.initialized())  // before the first tensor CUDA's has no statistics
    memory.tensors = allocator.getDeviceStats(device.index())
                         .reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
                         .current;
  return memory;
}

std::string device_identity([[maybe_unused]] const c10::Device& device) {
#ifdef SWITCHYARD_CUDA_KERNELS
  cudaDeviceProp properties;
  if (device.is_cuda() && cudaGetDeviceProperties(&properties, device.index()) == cudaSuccess)
    return {properties.uuid.bytes, sizeof properties.uuid.bytes};
#endif
  return "";
}

std::string device_name(const c10::Device& device) {
#ifdef SWITCHYARD_CUDA_KERNELS
  cudaDeviceProp properties;
  if (device.is_cuda() && cudaGetDeviceProperties(&properties, device.index()) == cudaSuccess) return properties.name;
#endif
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

i64 rank_peak(const RankMemory& memory, const c10::Device& device) {
  return device.is_cpu() ? memory.peak() : device_peak(device);
}

DeviceBudget::DeviceBudget(const c10::Device& device, i64 bytes) : device_(device), bytes_(bytes) {
  add_budget(device_, bytes_, 1);
}

DeviceBudget::~DeviceBudget() { add_budget(device_, bytes_, -1); }

void out_of_device_memory(int rank, const std::string& what, const c10::OutOfMemoryError& error) {
  user_error(
      "rank {}: its device has no memory left for {}: {}. Set a smaller micro_batch_tokens, recompute = \"full\", or "
      "another run.memory_budget: with a lower one plans leave more of the device free, a higher one lets them take "
      "more of it.",
      rank, what, error.what_without_backtrace());
}

}  // namespace switchyard::kernels
