// Host memory to a device without making the host wait.
#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard::kernels {

/// The values on a device, to which they are on their way when this returns, in the calling thread's stream. They go by
/// pinned memory of their own: copies from ordinary memory make the host wait. Of a CPU: the tensor itself.
at::Tensor upload(const at::Tensor& values, const at::Device& device);

}  // namespace switchyard::kernels
