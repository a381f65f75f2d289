#include "kernels/upload.hpp"

#include <ATen/ops/empty.h>

namespace switchyard::kernels {

at::Tensor upload(const at::Tensor& values, const at::Device& device) {
  if (device.is_cpu()) return values;
  const at::Tensor pinned = at::empty(values.sizes(), values.options().pinned_memory(true));
  return pinned.copy_(values).to(device, /*non_blocking=*/true);
}

}  // namespace switchyard::kernels
