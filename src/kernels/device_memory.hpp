// How much memory tensors take on a device.
#pragma once

#include <c10/core/Device.h>

#include "base/dtype.hpp"

namespace switchyard::kernels {

/// The most bytes that the tensors of this process had at once on a device since reset_device_peak: of all ranks that
/// share it. By the statistics of libtorch's allocator, which rounds blocks up.
i64 device_peak(const c10::Device& device);
void reset_device_peak(const c10::Device& device);

}  // namespace switchyard::kernels
