// How much memory tensors take on a device, and how much they may.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

#include "base/dtype.hpp"
#include "kernels/memory.hpp"

namespace switchyard::kernels {

/// The most bytes that the tensors of this process had at once on a device since reset_device_peak: of all ranks that
/// share it. By the statistics of libtorch's allocator, which rounds blocks up.
i64 device_peak(const c10::Device& device);
void reset_device_peak(const c10::Device& device);
/// The most that a rank had since it was reset: on a CPU its own memory's peak, else its device's.
i64 rank_peak(const RankMemory& memory, const c10::Device& device);

/// Bytes of a device's memory: all, those that nobody has taken, and those that this process has for tensors, or keeps
/// for more of them.
struct DeviceMemory {
  i64 all = 0, free = 0, tensors = 0;
};
DeviceMemory device_memory(const c10::Device& device);
/// Names one device among all of its host, whatever number a process knows it by; empty where that is not known: of
/// other types than CUDA, and in builds without nvcc.
std::string device_identity(const c10::Device& device);
/// The name of its model, for CUDA devices in builds with nvcc; else of its type, such as "cuda".
std::string device_name(const c10::Device& device);

/// Bytes that libtorch's allocator may hold for tensors of so many: between them lie free blocks that fit no tensor.
constexpr i64 with_fragments(i64 bytes) { return bytes + bytes / 16; }

/// While it lives, a rank may have tensors of so many bytes on a device; 0: of any size. Ranks that share the device in
/// one process add up their budgets, and have no limit if one of them has none. libtorch's allocator enforces the sum,
/// with_fragments, by an OutOfMemoryError; on a CUDA device it has room for cuBLAS beside it. Not enforced on a CPU,
/// whose ranks have RankMemory, nor on CUDA devices in builds without nvcc.
class DeviceBudget {
 public:
  DeviceBudget(const c10::Device& device, i64 bytes);
  ~DeviceBudget();
  DeviceBudget(const DeviceBudget&) = delete;
  DeviceBudget& operator=(const DeviceBudget&) = delete;

 private:
  c10::Device device_;
  i64 bytes_;
};

/// UserError with the rank, what it needed memory for, and what to do.
[[noreturn]] void out_of_device_memory(int rank, const std::string& what, const c10::OutOfMemoryError& error);

/// What allocators of devices of other kinds than CUDA implement so that budgets hold there.
class LimitedAllocator {
 public:
  virtual ~LimitedAllocator() = default;
  /// From now on live tensors of the device have at most so many bytes; 0: any number.
  virtual void limit(c10::DeviceIndex device, i64 bytes) = 0;
};

}  // namespace switchyard::kernels
